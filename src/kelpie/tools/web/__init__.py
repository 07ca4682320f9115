"""Web tools: search with one of a few providers, and the readable text of a page."""
