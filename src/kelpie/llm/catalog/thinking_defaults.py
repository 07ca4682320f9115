"""What an agent asks of its model about thinking when its maker said nothing, by the model's name.

It becomes part of the agent's settings when the agent is made: what clients are shown is what the provider is sent.
"""

import re
from collections.abc import Mapping
from typing import Any

BUDGET_TOKENS_MIN = 1024  # Anthropic's least

# Of later ones not all take "minimal"; they are left to what their provider holds right.
_MINIMAL = re.compile(r"gpt-5(-mini|-nano)?(-\d{4}-\d{2}-\d{2})?")


def of_claude(reasons: bool) -> Mapping[str, Any]:
    """A model of Anthropic's thinks first if it can."""
    return {"thinking": {"type": "enabled", "budget_tokens": BUDGET_TOKENS_MIN} if reasons else {"type": "disabled"}}


def of_openai(model: str) -> Mapping[str, Any]:
    """GPT-5 would think for long unasked, which an agent that takes many short steps does not need."""
    if _MINIMAL.fullmatch(model.rpartition("/")[2]):
        return {"reasoning": {"reasoning_effort": "minimal"}}
    return {}
