"""The provider port, its errors, and retries."""
