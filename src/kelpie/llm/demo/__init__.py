"""The built-in scripted model, which needs no key."""
