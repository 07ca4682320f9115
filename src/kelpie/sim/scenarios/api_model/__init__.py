"""Scenarios of random API calls: what the API says is compared with a model of it."""
