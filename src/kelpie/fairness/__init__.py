"""Fairness: turns of organizations, and of the agents of each, for what all of them share."""
