"""A report of saved runs: one HTML page that needs nothing else."""
