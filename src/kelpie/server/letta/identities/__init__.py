"""Identities: requests and responses."""
