"""The settings of a server: their declaration, sources and types."""
