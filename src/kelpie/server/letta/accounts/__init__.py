"""Users, organizations, access tokens and authentication: requests and responses."""
