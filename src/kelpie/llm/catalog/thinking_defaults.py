"""Default thinking settings of an agent whose client set none, by the model's name.

They become part of the agent's settings when the agent is created: clients see the settings that the provider gets.
"""

import re
from collections.abc import Mapping
from typing import Any

BUDGET_TOKENS_MIN = 1024  # Anthropic's least

# Not all later ones accept "minimal"; they keep their provider's default.
_MINIMAL = re.compile(r"gpt-5(-mini|-nano)?(-\d{4}-\d{2}-\d{2})?")


def of_claude(reasons: bool) -> Mapping[str, Any]:
    """The default for Anthropic's models: think first if the model can."""
    return {"thinking": {"type": "enabled", "budget_tokens": BUDGET_TOKENS_MIN} if reasons else {"type": "disabled"}}


def of_openai(model: str) -> Mapping[str, Any]:
    """The default for OpenAI's models: GPT-5 would think for long by default, which an agent with many short steps does
    not need."""
    if _MINIMAL.fullmatch(model.rpartition("/")[2]):
        return {"reasoning": {"reasoning_effort": "minimal"}}
    return {}
