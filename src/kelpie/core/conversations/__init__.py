"""Messages, conversations, runs and jobs, as values."""
