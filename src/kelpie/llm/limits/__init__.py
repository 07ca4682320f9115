"""Limits on calls to providers: how many at once, how many tokens and how much money in a time."""
