"""Runs of scenarios and the search for failing seeds."""
