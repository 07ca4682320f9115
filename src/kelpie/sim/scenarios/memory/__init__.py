"""Scenarios of memory: blocks, archives, facts, corruption."""
