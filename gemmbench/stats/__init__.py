"""From samples to intervals, ratios, rates, peaks, break-even sizes and ranks."""
