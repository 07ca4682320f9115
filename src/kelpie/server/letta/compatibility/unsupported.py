"""Fields of Letta's API that this version does not support yet, in one table.

A request that uses one is refused with the field's name instead of being accepted and silently not carried out.
"""

from collections.abc import Mapping
from typing import Any

from kelpie.core.errors import InvalidInput

_NO_TOKENS = "Kelpie does not return token probabilities and ids; omit this field"

AGENT_FIELDS: dict[str, str] = {
    "template": "an agent cannot be a template; create a template from the agent with POST /v1/templates",
}

SEND_FIELDS: dict[str, str] = {
    "return_logprobs": _NO_TOKENS,
    "top_logprobs": _NO_TOKENS,
    "return_token_ids": _NO_TOKENS,
}


def refuse(given: Mapping[str, Any], table: Mapping[str, str]) -> None:
    """Raises InvalidInput for the first unsupported field that is set; false and empty values ask for nothing."""
    for name, sentence in table.items():
        if given.get(name):
            raise InvalidInput(name, sentence)
