"""Folders and files: requests and responses, also under their older name, sources."""
