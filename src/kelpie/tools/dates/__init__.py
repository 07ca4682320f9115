"""Dates as models write them."""
