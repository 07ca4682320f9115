"""What Letta's API offers and this version does not carry out yet, in one table.

Such a request is refused with the field's name instead of being accepted and quietly not done.
"""

from collections.abc import Mapping
from typing import Any

from kelpie.core.errors import InvalidInput

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
    "background": f"background streams: {_NOT_YET}",
    "client_tools": f"tools run by the client: {_NOT_YET}",
    "client_skills": f"skills of the client: {_NOT_YET}",
    "override_model": f"another model for one message: {_NOT_YET}; change the agent's model instead",
    "override_system": f"another system prompt for one message: {_NOT_YET}; change the agent's instead",
    "system": f"another system prompt for one message: {_NOT_YET}; change the agent's instead",
    "return_logprobs": f"log probabilities: {_NOT_YET}",
    "top_logprobs": f"log probabilities: {_NOT_YET}",
    "return_token_ids": f"token ids: {_NOT_YET}",
}

MESSAGE_TYPES: dict[str, str] = {
    "approval": f"approvals: {_NOT_YET}",
    "tool_return": f"results of tools run by the client: {_NOT_YET}",
}


def refuse(given: Mapping[str, Any], table: Mapping[str, str]) -> None:
    """Raises InvalidInput for the first field of the table that asks for something; false and empty ask for nothing."""
    for name, sentence in table.items():
        if given.get(name):
            raise InvalidInput(name, sentence)
