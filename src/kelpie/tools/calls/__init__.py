"""The interface of a tool call: arguments, capabilities, results, access to Kelpie's API."""
