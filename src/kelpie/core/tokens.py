"""How many tokens a text is, roughly, without asking anybody: every provider counts in its own way."""

BYTES_PER_TOKEN = 4


def estimate(text: str) -> int:
    """About what a provider would count; never less than one for a text that is not empty."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
