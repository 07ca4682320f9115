"""Kelpie: a server on which stateful LLM agents live, remember and use tools."""

__version__ = "0.1.0"
