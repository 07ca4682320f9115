"""How many tokens a text is, roughly, without asking anybody: every provider counts in its own way."""

BYTES_PER_TOKEN = 4


def weigh(text: str) -> int:
    """Its bytes. Most texts are plain ASCII, for which they need not be made."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def tokens_in(weight: int) -> int:
    """About how many tokens so many bytes are; never none for any."""
    return -(-weight // BYTES_PER_TOKEN)


def estimate(text: str) -> int:
    """About what a provider would count; never less than one for a text that is not empty."""
    return tokens_in(weigh(text))
