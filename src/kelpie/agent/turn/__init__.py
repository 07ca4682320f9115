"""The turn: the loop of model call, commit and tool calls, and its recovery after a crash."""
