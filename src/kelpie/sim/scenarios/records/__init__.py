"""Scenarios of resources that several clients change at once."""
