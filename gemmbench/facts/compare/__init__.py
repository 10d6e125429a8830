"""Saved runs against each other: what one figure is worth, the noise floor, verdicts, the gate."""
