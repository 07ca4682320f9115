"""The prompt of a model call: instructions, memory, history and the context it is built from."""
