"""Messages that the code of a tool sends to an agent, on behalf of the agent that called the tool.

The chain of its passport goes with the message, so that no agent is asked that waits for this very code to end: such a
message could never be answered, and it is refused before anything is stored.
"""

from contextlib import ExitStack
from dataclasses import replace

from kelpie.agent.inbox import image_inputs
from kelpie.agent.inbox.wait_graph import WaitGraph
from kelpie.agent.turn.send_request import DEFAULT_LANE, NOBODY_WAITS, SendRequest
from kelpie.core.access.passports import Passport
from kelpie.core.conversations.agent_chain import HOPS_MAX
from kelpie.core.errors import Conflict, Forbidden, ToolError
from kelpie.core.ids import AgentId
from kelpie.core.time import Micros


def on_behalf(send: SendRequest, other: AgentId, passport: Passport) -> SendRequest:
    """The send, with the agents that wait for its answer.

    Raises Conflict for a cycle and when the chain is spent, and Forbidden for what is more than saying something and
    for an image at a host that the code may not reach itself.
    """
    _check_plain(send)
    image_inputs.check_egress(send.messages, passport)
    chain = passport.chain
    if other in chain.waiting:
        raise Conflict(
            f"CYCLE: {other} is waiting for this tool to finish, so it could never answer. The message was not sent. "
            "Let the tool return the result that it has."
        )
    if chain.hops > HOPS_MAX:
        raise Conflict(
            f"Agents have already exchanged {HOPS_MAX} messages since the last message from a person, which is the "
            "limit. The message was not sent."
        )
    if send.run_type == NOBODY_WAITS:
        chain = replace(chain, waiting=())
    messages = tuple(replace(message, sender_id=passport.agent_id) for message in send.messages)
    return replace(send, messages=messages, chain=chain)


def _check_plain(send: SendRequest) -> None:
    """Raises Forbidden for more than plain messages: code may not approve calls or change how agents answer.

    A callback would give code without network access a way to the network; an approval must come from a person.
    """
    more = {
        "approvals": send.answers,
        "callback_url": send.callback_url,
        "client_tools": send.client_tools,
        "override_model": send.override_model,
        "override_system, system, client_skills": send.override,
    }
    for field, value in more.items():
        if value:
            raise Forbidden(f"{field}: tool code may send messages but may not set this field; omit it.")


def wait(waits: WaitGraph, passport: Passport, other: AgentId, conversation: str, now: Micros) -> ExitStack:
    """Enters that the agent waits for the other one, until the stack is closed. Raises Conflict for a ring, and
    Overloaded when too much code waits."""
    here = passport.agent_id, passport.conversation_id or DEFAULT_LANE
    with ExitStack() as stack:
        try:
            stack.enter_context(waits.waiting(here, (other, conversation)))
        except ToolError as error:
            raise Conflict(f"CYCLE: {error}") from error
        stack.enter_context(waits.of_code(passport, now))
        return stack.pop_all()
