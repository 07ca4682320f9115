"""Folders, the files in them, and what an agent sees of them, as values."""
