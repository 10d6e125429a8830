"""Plain data: what is measured, by which instrument, and what came of it."""
