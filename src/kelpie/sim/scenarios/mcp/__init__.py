"""Scenarios of MCP servers that agents use: they break, ask, take long, change their tools, and want new tokens."""
