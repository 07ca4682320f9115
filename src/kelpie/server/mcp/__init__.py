"""Kelpie as an MCP server at /mcp: agents and their memory as tools and resources, for clients of both generations."""
