"""Limits on requests: the size of a body, the number of names in it, and fields that hold any JSON."""
