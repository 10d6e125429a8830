"""Plain data: what every other part of gemmbench speaks of."""
