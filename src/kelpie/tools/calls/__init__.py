"""The interface of a tool call: arguments, capabilities, results, access to our API."""
