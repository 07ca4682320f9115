"""Agents at work: one loop for every agent type, one path for streaming and not streaming."""
