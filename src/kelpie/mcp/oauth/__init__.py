"""OAuth for MCP servers: discovery, login with PKCE, and tokens that are renewed."""
