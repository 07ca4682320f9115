"""The JSON schema of a tool, derived from its source code."""
