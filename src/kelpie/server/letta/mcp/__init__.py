"""MCP servers: requests and responses."""
