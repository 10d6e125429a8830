"""What is known: shapes, types, units, statistics, the saved file. Imports gemmbench.facts only."""
