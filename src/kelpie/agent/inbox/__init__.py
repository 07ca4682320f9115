"""The inbox of an agent: sending messages, background runs, cancelling, and waits between agents."""
