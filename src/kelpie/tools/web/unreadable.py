"""The reason why a document has no text. It is here for programs that need no library to find it out."""


class Unreadable(Exception):
    """Why there is no text, as the end of a sentence."""
