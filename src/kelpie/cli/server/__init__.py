"""The server of a data directory: find, start and stop it."""
