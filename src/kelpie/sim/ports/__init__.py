"""Simulated adapters of the ports."""
