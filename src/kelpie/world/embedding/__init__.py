"""The embedding model that runs on this machine."""
