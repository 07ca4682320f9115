"""Commands about folders and the files in them."""
