"""Ids are parsed once, at the edge: the right shape gives a typed id, any other is refused with a reason."""

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kelpie.core.errors import CallerError, InvalidId, InvalidInput
from kelpie.core.ids import (
    DEFAULT_ORGANIZATION,
    DEFAULT_USER,
    AgentId,
    ArchiveId,
    BlockId,
    ConversationId,
    Id,
    MessageId,
    OrganizationId,
    PassageId,
    RunId,
    SecretId,
    StepId,
    ToolId,
    UserId,
)
from kelpie.world.ids import RandomIds, SeededIds

PREFIXES: dict[type[Id], str] = {
    AgentId: "agent",
    BlockId: "block",
    ToolId: "tool",
    MessageId: "message",
    RunId: "run",
    StepId: "step",
    ConversationId: "conv",
    ArchiveId: "archive",
    PassageId: "passage",
    SecretId: "agent-env",
    UserId: "user",
    OrganizationId: "org",
}
UUID = "12345678-9abc-4def-8123-456789abcdef"
KINDS = list(PREFIXES)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_prefix_and_parses_it(kind: type[Id]) -> None:
    text = f"{PREFIXES[kind]}-{UUID}"
    parsed = kind.parse(text)
    assert type(parsed) is kind
    assert parsed == text
    assert parsed.uuid == UUID


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_id_parses_as_its_own_kind_and_as_no_other(kind: type[Id]) -> None:
    for ids in (RandomIds(), SeededIds(random.Random(1))):
        new = ids.new(kind)
        assert kind.parse(new) == new
        for other in KINDS:
            if other is not kind:
                with pytest.raises(InvalidId):
                    other.parse(new)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agent",
        "agent-",
        UUID,
        f"Agent-{UUID}",
        f"agent-{UUID.upper()}",
        f"agent_{UUID}",
        f" agent-{UUID}",
        f"agent-{UUID} ",
        f"agent-{UUID}\n",
        f"agent-{UUID}x",
        f"agent-{UUID[:-1]}",
        f"agent-{UUID.replace('-', '')}",
        f"agent-{{{UUID}}}",
        "agent-12345678-9abc-1def-8123-456789abcdef",  # version 1
        "agent-12345678-9abc-4def-7123-456789abcdef",  # another variant
        "agent-1234567g-9abc-4def-8123-456789abcdef",
        f"agent-env-{UUID}",
        f"block-{UUID}",
        f"agent-{UUID}; DROP TABLE agents",
        "agent-１2345678-9abc-4def-8123-456789abcdef",
    ],
)
def test_another_shape_is_refused_with_the_field_and_the_remedy(text: str) -> None:
    with pytest.raises(InvalidId) as refused:
        AgentId.parse(text)
    assert refused.value.field == "agent_id"
    assert refused.value.text == text
    assert "agent-<uuid4>" in str(refused.value)
    assert isinstance(refused.value, InvalidInput) and isinstance(refused.value, CallerError)


def test_a_huge_text_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidId) as refused:
        AgentId.parse("x" * 100_000)
    assert len(str(refused.value)) < 300


@given(st.text(max_size=60))
def test_arbitrary_text_is_refused_and_never_something_else(text: str) -> None:
    with pytest.raises(InvalidId):
        AgentId.parse(text)


@given(st.uuids(version=4))
def test_every_uuid4_is_accepted(value: uuid.UUID) -> None:
    assert AgentId.parse(f"agent-{value}").uuid == str(value)


def test_seeded_ids_repeat_with_their_seed_and_differ_within_it() -> None:
    def ten(seed: int) -> list[AgentId]:
        ids = SeededIds(random.Random(seed))
        return [ids.new(AgentId) for _ in range(10)]

    assert ten(1) == ten(1) != ten(2)
    assert len(set(ten(1))) == 10


def test_the_defaults_have_the_right_shape() -> None:
    assert UserId.parse(DEFAULT_USER) == DEFAULT_USER
    assert OrganizationId.parse(DEFAULT_ORGANIZATION) == DEFAULT_ORGANIZATION
