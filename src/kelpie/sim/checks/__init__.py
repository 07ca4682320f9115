"""Checks of invariants and of linearizability."""
