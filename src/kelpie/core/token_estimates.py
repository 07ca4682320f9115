"""Estimates of token counts without asking a provider: every provider counts in its own way."""

BYTES_PER_TOKEN = 4


def byte_length(text: str) -> int:
    """Length of a text in bytes. Most texts are plain ASCII, which needs no encoding."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def tokens_in(weight: int) -> int:
    """Estimated tokens of so many bytes; at least one for any."""
    return -(-weight // BYTES_PER_TOKEN)


def estimate(text: str) -> int:
    """Estimated tokens of a text; at least one for a text that is not empty."""
    return tokens_in(byte_length(text))
