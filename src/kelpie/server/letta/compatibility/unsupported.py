"""What Letta's API offers and this version does not carry out yet, in one table.

Such a request is refused with the field's name instead of being accepted and quietly not done.
"""

from collections.abc import Mapping
from typing import Any

from kelpie.core.errors import InvalidInput

_NO_TOKENS = "the probabilities and ids of tokens are for training models, which Kelpie does not do; leave it out"
_NOT_YET = "this version of Kelpie does not carry it out yet; leave it out"

AGENT_FIELDS: dict[str, str] = {
    "source_ids": f"folders: {_NOT_YET}",
    "folder_ids": f"folders: {_NOT_YET}",
    "include_default_source": f"folders: {_NOT_YET}",
    "from_template": f"templates: {_NOT_YET}",
    "template": f"templates: {_NOT_YET}",
    "memory_variables": f"templates: {_NOT_YET}",
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
