"""Folders, files with their text, and what agents see of them, as rows, and the search in them."""
