"""Probes: arithmetic, matrix units, memory, transfers and launches."""
