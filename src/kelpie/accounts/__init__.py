"""Who may come in, and whose rows they see: users, organisations, identities, keys, tokens and the password."""
