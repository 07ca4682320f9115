"""What Letta's API offers and this version does not carry out yet, in one table.

Such a request is refused with the field's name instead of being accepted and quietly not done.
"""

from collections.abc import Mapping
from typing import Any

from kelpie.core.errors import InvalidInput

_NO_TOKENS = "Kelpie does not return token probabilities and ids; omit this field"
_FOLDERS = "Kelpie does not support folders yet; omit this field"
_TEMPLATES = "Kelpie does not support templates yet; omit this field"

AGENT_FIELDS: dict[str, str] = {
    "source_ids": _FOLDERS,
    "folder_ids": _FOLDERS,
    "include_default_source": _FOLDERS,
    "from_template": _TEMPLATES,
    "template": _TEMPLATES,
    "memory_variables": _TEMPLATES,
}

SEND_FIELDS: dict[str, str] = {
    "return_logprobs": _NO_TOKENS,
    "top_logprobs": _NO_TOKENS,
    "return_token_ids": _NO_TOKENS,
}


def refuse(given: Mapping[str, Any], table: Mapping[str, str]) -> None:
    """Raises InvalidInput for the first field of the table that asks for something; false and empty ask for nothing."""
    for name, sentence in table.items():
        if given.get(name):
            raise InvalidInput(name, sentence)
