"""A server on a machine that cannot hold code: code of tools is refused and the model is told why and what to do;
everything else goes on as ever."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.sdk import every, got
from tests.acceptance.served import Served, served
from tests.acceptance.wire_model import HANDLES, WireModel, wires

SENTENCE = "bubblewrap is not installed. Install the package bubblewrap"
DOUBLE = '''
def double(number: int) -> int:
    """Doubles it.

    Args:
        number: what to double
    """
    return 2 * number
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: WireModel) -> Iterator[Served]:
    nothing = tmp_path_factory.mktemp("empty")
    with served(tmp_path_factory.mktemp("data"), **wires(model.url), PATH=str(nothing)) as running:
        yield running


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("handle", HANDLES)
async def test_code_is_refused_with_the_remedy_and_built_in_tools_work(
    client: Any, server: Served, model: WireModel, handle: str, streaming: bool
) -> None:
    tool = await got(client.tools.upsert(source_code=DOUBLE))
    agent = await got(
        client.agents.create(
            model=handle, include_base_tools=False, tool_ids=[tool.id], tools=["memory_insert", "run_code", "shell"],
            memory_blocks=[{"label": "human", "value": "Ada"}],
        )
    )  # fmt: skip
    calls: list[tuple[str, dict[str, Any]]] = [
        ("double", {"number": 2}),
        ("run_code", {"code": "print(1)", "language": "python"}),
        ("shell", {"command": "id"}),
        ("memory_insert", {"label": "human", "new_string": "likes tea"}),
    ]
    model.will(*([call] for call in calls), "done")
    if streaming:
        messages = await every(await got(client.agents.messages.create(agent.id, input="go", streaming=True)))
    else:
        messages = (await got(client.agents.messages.create(agent.id, input="go"))).messages
    told = [(one.status, one.tool_return) for one in messages if one.message_type == "tool_return_message"]
    assert [status for status, _ in told] == ["error", "error", "error", "success"], told
    for at, (_, text) in enumerate(told[:3], start=1):
        assert SENTENCE in text and SENTENCE in str(model.asked[at]), "the model is told as well"
    assert "likes tea" in (await got(client.agents.blocks.retrieve("human", agent_id=agent.id))).value
    async with httpx.AsyncClient(base_url=server.url) as http:
        report = (await http.get("/v1/kelpie/sandbox")).json()
    assert report["isolation"] is None and SENTENCE in report["lacking"]


async def test_a_tool_run_by_hand_is_refused_as_well(client: Any) -> None:
    tool = await got(client.tools.upsert(source_code=DOUBLE))
    agent = await got(client.agents.create(model=HANDLES[0], include_base_tools=False, tool_ids=[tool.id]))
    told = await got(client.agents.tools.run("double", agent_id=agent.id, args={"number": 2}))
    assert told.status == "error" and SENTENCE in str(told.stderr)
