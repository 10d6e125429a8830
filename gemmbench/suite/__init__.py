"""Plans and runs: what to measure, in which order, and what is cached between runs."""
