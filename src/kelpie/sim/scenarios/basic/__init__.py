"""Scenarios of single faults: disk, clocks, models, clients."""
