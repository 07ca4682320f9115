"""Memory blocks as rows, with their history and attachments."""
