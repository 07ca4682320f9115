"""Processes of this machine: starting, ending, and the server in the background."""
