"""Agents: requests and responses."""
