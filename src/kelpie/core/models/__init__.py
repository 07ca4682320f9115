"""Limits, prices and formats of models, as values."""
