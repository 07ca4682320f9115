"""A stable name for something that goes wrong or happens: in the answer to a request, in a line of the log, or both."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """A code never changes once released; its meaning and its remedy may be said in better words.

    `remedy` is empty where there is nothing to do.
    """

    name: str
    meaning: str
    remedy: str = ""
