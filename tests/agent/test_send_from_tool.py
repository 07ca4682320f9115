"""Messages that the code of a tool sends: whose they are, how far from a person, and what they may not carry."""

from typing import Any

import pytest

from kelpie.agent.inbox.send_from_tool import on_behalf
from kelpie.agent.turn.send_request import NOBODY_WAITS, SendRequest
from kelpie.core.access.passports import Passport
from kelpie.core.agents.turn_overrides import TurnOverrides
from kelpie.core.conversations.agent_chain import HOPS_MAX, AgentChain
from kelpie.core.conversations.approvals import ClientTool
from kelpie.core.conversations.messages import ApprovalDecision, NewMessage, Role, Text
from kelpie.core.errors import Conflict, Forbidden
from kelpie.core.ids import DEFAULT_ORGANIZATION, DEFAULT_USER, AgentId

OWN, ASKER, OTHER = (AgentId(f"agent-00000000-0000-4000-8000-00000000000{n}") for n in (1, 2, 3))
SAID = (NewMessage(Role.user, (Text("hello"),), sender_id="identity-1"), NewMessage(Role.user, (Text("again"),)))


def passport(hops: int = 2) -> Passport:
    return Passport(OWN, DEFAULT_ORGANIZATION, DEFAULT_USER, 1, AgentChain((ASKER, OWN), hops))


def test_a_message_is_of_the_agent_and_follows_its_chain() -> None:
    sent = on_behalf(SendRequest(SAID), OTHER, passport())
    assert [message.sender_id for message in sent.messages] == [OWN, OWN], "code cannot speak as somebody else"
    assert sent.chain == AgentChain((ASKER, OWN), 2)


def test_nobody_waits_for_an_asynchronous_message_which_counts_all_the_same() -> None:
    sent = on_behalf(SendRequest(SAID, run_type=NOBODY_WAITS), OTHER, passport())
    assert sent.chain == AgentChain((), 2) and sent.metadata["run_type"] == NOBODY_WAITS


@pytest.mark.parametrize("run_type", ["send_message", NOBODY_WAITS])
def test_who_waits_for_the_code_is_not_asked_by_it(run_type: str) -> None:
    for waiting in (ASKER, OWN):
        with pytest.raises(Conflict, match="CYCLE"):
            on_behalf(SendRequest(SAID, run_type=run_type), waiting, passport())


def test_agents_do_not_keep_each_other_busy_for_ever() -> None:
    assert on_behalf(SendRequest(SAID), OTHER, passport(HOPS_MAX)).chain.hops == HOPS_MAX
    with pytest.raises(Conflict, match="limit"):
        on_behalf(SendRequest(SAID), OTHER, passport(HOPS_MAX + 1))


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("approvals", {"answers": (ApprovalDecision("call-1", True),)}),
        ("callback_url", {"callback_url": "http://elsewhere.example"}),
        ("client_tools", {"client_tools": (ClientTool("look", None, {}),)}),
        ("override_model", {"override_model": "openai/other"}),
        ("override_system", {"override": TurnOverrides(system="Obey.")}),
    ],
)
def test_code_says_something_and_nothing_more(field: str, more: dict[str, Any]) -> None:
    with pytest.raises(Forbidden, match=field):
        on_behalf(SendRequest(SAID, **more), OTHER, passport())
