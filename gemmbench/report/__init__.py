"""Builders of tables, notes and progress."""
