"""Authentication and authorization: users, organizations, identities, keys, tokens and the password."""
