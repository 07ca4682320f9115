"""Worker processes for input that may cost more than its size suggests: limited in time and memory, and killable."""
