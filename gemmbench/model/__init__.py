"""Plain data: what every other room speaks of."""
