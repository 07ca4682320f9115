"""Events of a turn: what clients receive while it runs, stored or not, and requests to cancel it."""
