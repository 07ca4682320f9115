"""Templates, their versions, and the variables that agents were made with, as rows."""
