"""The API of conversations: opening them, their histories, their context windows, and search in their messages."""
