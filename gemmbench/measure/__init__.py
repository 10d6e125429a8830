"""The instrument, in a process of its own, and how its batches become samples."""
