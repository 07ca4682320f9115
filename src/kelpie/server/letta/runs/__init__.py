"""Runs, steps and jobs: requests and responses."""
