"""Encryption keys of stored secrets: checked at the start of a server, and rotated while it runs."""
