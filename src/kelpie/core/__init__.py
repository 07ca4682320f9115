"""Values of the domain and the error tree: pure, no I/O, no async."""
