"""Tools, sandbox configurations and MCP servers as rows."""
