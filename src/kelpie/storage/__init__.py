"""All SQL of the product: the schema, and one module per aggregate whose functions run inside a transaction."""
