"""Archives and passages as rows, and the search in them."""
