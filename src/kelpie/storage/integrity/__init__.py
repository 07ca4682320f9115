"""Checks of stored rows and of the search index."""
