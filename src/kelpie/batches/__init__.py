"""Batches: many messages for one or several agents in one request, each of which ends with an outcome of its own."""
