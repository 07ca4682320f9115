"""The nouns of the domain and the error tree: pure values, no I/O, no async."""
