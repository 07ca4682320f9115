"""The SQLite adapter of the database port."""
