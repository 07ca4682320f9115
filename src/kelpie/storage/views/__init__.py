"""Queries that read across several kinds of rows."""
