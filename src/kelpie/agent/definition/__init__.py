"""The definition of an agent: creating it, changing it, and loading what is stored of it."""
