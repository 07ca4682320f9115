"""Tools of MCP servers: how they are stored, kept in step with their servers, and called."""
