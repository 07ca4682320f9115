"""Working memory, facts and entities as rows."""
