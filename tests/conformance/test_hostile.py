"""Requests made from our own API description, fitting and unfitting, on things that exist: none may end in a 5xx.

A share of them here, many more under `make soak`. Ids in paths are real ones, so that a request gets past the door.
"""

import contextlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from hypothesis.internal.conjecture import engine

from tests.acceptance.served import served
from tests.conformance.things import Things
from tests.lazily import lazily
from tests.server.description import document
from tests.turns import in_turns

if TYPE_CHECKING:
    from schemathesis import APIOperation, Case

schemathesis = lazily("schemathesis")

HERE, MANY = 2, 150  # requests of either kind to an operation
SHARES = 8  # of the operations
DRAWS_MAX = 60  # for the first request; an operation that can be asked wrongly takes ten for four
UNTRIED = {
    "/v1/kelpie/models/pull",  # these two have another server do something
    "/v1/kelpie/models/remove",
    "/v1/kelpie/logs/stream",  # it has no end; see tests/server/test_log_stream.py
}
NOT_FAULTS = {501, 502}  # a route that is not here says so; so does an MCP server that cannot be reached

MAKERS: dict[str, Callable[[Things], str]] = {
    "agent_id": Things.agent,
    "block_id": Things.block,
    "tool_id": Things.tool,
    "archive_id": Things.archive,
    "identity_id": Things.identity,
    "conversation_id": Things.conversation,
    "group_id": Things.group,
    "mcp_server_id": Things.mcp_server,
    "sandbox_config_id": Things.sandbox,
    "env_var_id": Things.sandbox_variable,
    "run_id": lambda t: t.talked.run,
    "step_id": lambda t: t.talked.step,
    "message_id": lambda t: t.talked.message,
    "label": lambda t: "human",
    "block_label": lambda t: "human",
    "tool_name": lambda t: "conversation_search",
    "passage_id": lambda t: t.passage()[1],
    "memory_id": lambda t: t.agent_passage()[1],
}


def operations() -> "dict[str, APIOperation[Any, Any, Any, Any]]":
    """What our description says there is; the app is only asked to describe itself."""
    description = deepcopy(document())
    # With them, requests would have random credentials, and be refused for those alone.
    del description["security"], description["components"]["securitySchemes"]
    schema = schemathesis.openapi.from_dict(description)
    found = (result.ok() for result in schema.get_all_operations())
    return {op.label: op for op in found if op.path not in UNTRIED}


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Things]:
    with served(tmp_path_factory.mktemp("hostile")) as server:
        yield Things(server.url)


@pytest.fixture(scope="module")
def described() -> "dict[str, APIOperation[Any, Any, Any, Any]]":
    return operations()


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be wrong about an operation that takes nothing, and drawing it 458 times took most of the time."""
    monkeypatch.setattr(engine, "INVALID_THRESHOLD_BASE", DRAWS_MAX)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("share", in_turns("hostile requests", {str(share): share for share in range(SHARES)}, 4))
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("examples", [HERE, pytest.param(MANY, marks=pytest.mark.soak)])
def test_no_request_ends_in_a_fault_of_ours(
    things: Things,
    described: "dict[str, APIOperation[Any, Any, Any, Any]]",
    share: int,
    mode: str,
    examples: int,
) -> None:
    faults: dict[str, str] = {}
    for label, operation in sorted(described.items())[share::SHARES]:
        _search(things, label, operation, mode, examples, faults)
    assert not faults, "\n".join(f"{label}: {told}" for label, told in faults.items())


def _search(
    things: Things,
    label: str,
    operation: "APIOperation[Any, Any, Any, Any]",
    mode: str,
    examples: int,
    faults: dict[str, str],
) -> None:
    names = [part.strip("{}").removesuffix(":path") for part in operation.path.split("/") if part.startswith("{")]
    real = {name: MAKERS[name](things) for name in names if name in MAKERS}

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)), known=st.booleans())
    def ask(case: "Case", known: bool) -> None:
        if known:
            case.path_parameters = {**(case.path_parameters or {}), **real}
        answer = case.call(base_url=str(things.http.base_url))
        if answer.status_code >= 500 and answer.status_code not in NOT_FAULTS:
            faults.setdefault(label, f"{answer.status_code} {case.as_curl_command()[:600]}")

    with contextlib.suppress(Unsatisfiable):  # nothing can be wrong about an operation that takes nothing
        ask()
