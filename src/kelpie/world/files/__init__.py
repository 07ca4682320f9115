"""Files of this machine: the data directory, logs, settings, workspaces."""
