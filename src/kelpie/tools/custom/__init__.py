"""Custom tools: their definition, environment and runner."""
