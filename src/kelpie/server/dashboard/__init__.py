"""The dashboard: the page at `/` with its files, and signing in to it."""
