"""Limit on a summary: how long it may be in the window it goes into, and how much its model may write for it.

A model that writes more is cut short, and the text says so: a summary never makes a context overflow.
"""

from dataclasses import dataclass

from kelpie.agent.prompt.summary import summary_weight
from kelpie.agent.prompt.transcript import clipped
from kelpie.core.token_estimates import tokens_in

CHARS_MIN = 400  # where the window has room for it
ENDS_HERE = "[The summary reached its limit and ends here.]"
_TOKENS_MIN = 100
_CHARS_PER_WORD = 7  # on the careful side; the space counts
_WORDS_ASKED = 300  # by the default prompts


@dataclass(frozen=True, slots=True)
class SummaryLimit:
    """The characters of a summary, the weight of its row in the context, and its estimated number of tokens."""

    chars: int
    weight: int
    tokens: int

    @property
    def request(self) -> str:
        """What a model is told about the limit; empty where the default prompts ask for less anyway."""
        words = self.chars // _CHARS_PER_WORD
        return f"The summary must have at most {words} words." if words < _WORDS_ASKED else ""

    def fitted(self, text: str) -> str:
        """The text, without its middle when it is longer than the limit; what is left out is counted in the text."""
        chars, shown = min(self.chars, len(text)), clipped(text, self.chars)
        while chars and (size := summary_weight(shown)) > self.weight:
            chars = min(chars - 1, max(chars * self.weight // size, 0))
            shown = clipped(text, chars)
        return shown


def summary_limit(chars: int, weight: int, tokens: int, scale: float) -> SummaryLimit:
    """The limit for so many characters and tokens in a row of at most this weight, with `scale` tokens of the model to
    one that is estimated."""
    text_bytes = max(min(chars, weight - summary_weight("")), 0)
    return SummaryLimit(text_bytes, weight, max(min(tokens, int(tokens_in(text_bytes) * scale)), _TOKENS_MIN))
