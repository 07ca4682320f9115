"""The registry of tools, their permissions and sandbox configurations."""
