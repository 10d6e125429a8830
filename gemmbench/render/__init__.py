"""Saved runs as text: tables, exports, live progress. Imports gemmbench.facts and rich."""
