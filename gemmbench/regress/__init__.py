"""Saved runs against each other: compare, check."""
