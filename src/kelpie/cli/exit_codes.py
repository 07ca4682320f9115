"""How the commands end; documented in docs/cli.md. Two is what every parser of arguments uses."""

OK = 0
ERROR = 1
USAGE = 2
NOT_RUNNING = 3
NOT_FOUND = 4
