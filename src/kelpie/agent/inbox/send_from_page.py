"""Messages that a web page sends with an access token.

Whoever uses the page can read its token, so it may speak to the agent, but not change how the agent answers.
"""

from kelpie.agent.turn.send_request import SendRequest
from kelpie.core.conversations.messages import ApprovalDecision, Role
from kelpie.core.errors import Forbidden


def check_page(send: SendRequest, max_steps: int) -> None:
    """Raises Forbidden, naming the field, for more than messages of a user and denials of calls that wait.

    `max_steps` is the server's default, and the most that a page gets.
    """
    override = send.override
    more = {
        "override_system": override is not None and override.system is not None,
        "instructions": override is not None and override.instructions is not None,
        "response_format": override is not None and override.response_format is not None,
        "override_model": send.override_model is not None or (override is not None and override.model is not None),
        "client_skills": override is not None and bool(override.skills),
        "client_tools": bool(send.client_tools),
        "callback_url": send.callback_url is not None,
        "role": any(message.role is not Role.user for message in send.messages),
        "approvals": not all(isinstance(one, ApprovalDecision) and not one.approve for one in send.answers),
    }
    for field, is_given in more.items():
        if is_given:
            raise Forbidden(f"{field}: {_REMEDIES.get(field, _OMIT)}")
    if send.max_steps > max_steps:
        raise Forbidden(f"max_steps: an access token may use at most {max_steps} steps; omit the field.")


_OMIT = "an access token may not set this field; omit it, or use an API key."
_REMEDIES = {
    "role": "an access token may only send messages of the role 'user'.",
    "approvals": "an access token may deny tool calls, but not approve or answer them; use an API key.",
    "override_system": "an access token may set neither this field nor 'system'; omit it, or use an API key.",
}
