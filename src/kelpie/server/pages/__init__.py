"""Pages for people: the start page and the API documentation. They load nothing from other hosts."""
