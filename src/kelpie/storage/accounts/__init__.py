"""Organizations, users, API keys and access tokens as rows."""
