"""The chat at a terminal: what is typed, what is shown, and the turns in between."""
