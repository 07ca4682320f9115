"""Everything that speaks SQL: the schema, and one module per aggregate whose functions run inside a transaction."""
