"""Callers, credentials, identities and hosts, as values."""
