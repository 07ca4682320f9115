"""Archives and passages: requests and responses."""
