"""Exit codes of the commands; documented in docs/cli.md. Two is what every argument parser uses."""

OK = 0
ERROR = 1
USAGE = 2
NOT_RUNNING = 3
NOT_FOUND = 4
