"""What can be read about runs and about what was spent, beside their lists: it is compared with the rows on the disk,
which the server does not read for it. Nothing may change meanwhile.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from kelpie.sim.loop.errors import Broken
from kelpie.sim.scenarios.checks.list_checks import Ask, Get

RUNS_MAX = 3
STEPS_MAX = 2
AGENTS_MAX = 3
PERCENTILES = (0, 50, 100)
_PRESENT = "agent_id IN (SELECT id FROM agents WHERE organization_id = ?)"
_RAN = "('success', 'error', 'interrupted')"


async def runs_are_right(get: Get, ask: Ask, organization: str) -> None:
    """The views of single runs, runs by how long they took, what was spent, and context windows. Raises Broken."""
    found = ask(
        f"SELECT id, agent_id, usage, step_count, total_duration_ns, taken_up, background, input FROM runs "
        f"WHERE {_PRESENT} ORDER BY step_count DESC, id",
        organization,
    )
    for row in islice(found, RUNS_MAX):
        await _run_is_right(get, ask, *row)
    await _durations_are_right(get, sorted((row[4], row[0]) for row in found if row[4] is not None))
    await _sums_are_right(get, ask, organization)
    for agent_id, lane in ask(
        f"SELECT DISTINCT agent_id, conversation_id FROM context WHERE {_PRESENT} ORDER BY 1, 2 LIMIT {AGENTS_MAX}",
        organization,
    ):
        await _window_is_right(get, ask, agent_id, lane)


async def _run_is_right(
    get: Get,
    ask: Ask,
    run_id: str,
    agent_id: str,
    usage: str,
    steps: int,
    ns: int,
    starts: int,
    background: int,
    given: str,
) -> None:
    used = json.loads(usage)
    cost = None if used["unpriced_calls"] else used["cost_micros"] / 1_000_000
    told = await get(f"/v1/runs/{run_id}/usage")
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    _is(run_id, "usage", [told[name] for name in (*names, "kelpie_cost_usd")], [*(used[name] for name in names), cost])
    tools = ask(f"SELECT DISTINCT tool_id FROM tool_calls WHERE run_id = ? AND outcome IN {_RAN}", run_id)
    metrics = await get(f"/v1/runs/{run_id}/metrics")
    called = sorted(tool_id for (tool_id,) in tools if tool_id is not None)
    shown = (metrics["agent_id"], metrics["run_ns"], metrics["num_steps"], metrics["tools_used"] or [])
    _is(run_id, "metrics", shown, (agent_id, ns, steps, called))
    spans = [span["span_id"] for span in await get(f"/v1/runs/{run_id}/trace")]
    of_run = ask("SELECT id FROM steps WHERE run_id = ? ORDER BY created_at, id", run_id)
    _is(run_id, "trace", spans, [run_id, *(step_id for (step_id,) in of_run)])
    for (step_id,) in of_run[:STEPS_MAX]:
        await _step_is_right(get, ask, step_id)
    record = await get(f"/v1/kelpie/runs/{run_id}")
    journal = [(each["number"], each["kind"]) for each in record["journal"]]
    _is(run_id, "journal", journal, ask("SELECT step, kind FROM journal WHERE turn_id = ? ORDER BY step", run_id))
    asked = [(each["role"], each["otid"], _text(each["content"])) for each in record["input"]]
    wanted = [(each["role"], each["otid"], _text(each["content"])) for each in json.loads(given)["messages"]]
    _is(run_id, "input", asked, wanted)
    state = (record["step_count"], record["total_tokens"], record["recoveries"], record["stuck"])
    _is(run_id, "record", state, (steps, used["total_tokens"], max(starts - background, 0), False))


async def _step_is_right(get: Get, ask: Ask, step_id: str) -> None:
    """The times of a step."""
    ((run_id, agent_id, project_id, llm_ns, step_ns, usage),) = ask(
        "SELECT run_id, agent_id, project_id, llm_ns, step_ns, usage FROM steps WHERE id = ?", step_id
    )
    metrics, used = await get(f"/v1/steps/{step_id}/metrics"), json.loads(usage)
    names = ("run_id", "agent_id", "project_id", "llm_request_ns", "step_ns", "model_load_ns", "model_inference_ns")
    stored = [run_id, agent_id, project_id, llm_ns, step_ns, used["load_ns"], used["inference_ns"]]
    _is(step_id, "metrics", [metrics[name] for name in names], stored)


def _text(content: Sequence[Mapping[str, Any]]) -> str:
    return "".join(part.get("text", "") for part in content)


async def _durations_are_right(get: Get, took: Sequence[tuple[int, str]]) -> None:
    """Runs by their duration: in order, above, below and at one of them, and the slowest."""
    if not took:
        return
    middle = took[len(took) // 2][0]
    queries = {
        "duration_value={0}&duration_operator=gt": [run_id for ns, run_id in took if ns > middle],
        "duration_value={0}&duration_operator=lt": [run_id for ns, run_id in took if ns < middle],
        "duration_value={0}&duration_operator=eq": [run_id for ns, run_id in took if ns == middle],
    }
    for share in PERCENTILES:
        least = took[min(len(took) * share // 100, len(took) - 1)][0]
        queries[f"duration_percentile={share}"] = [run_id for ns, run_id in took if ns >= least]
    for query, wanted in queries.items():
        path = f"/v1/_internal_runs/?limit=1000&order_by=duration&order=asc&{query.format(middle)}"
        _is(path, "runs", [run["id"] for run in await get(path)], wanted)


async def _sums_are_right(get: Get, ask: Ask, organization: str) -> None:
    """What an organization has spent, by model and by agent."""
    spent: dict[str, dict[str, Counter[str]]] = {by: defaultdict(Counter) for by in ("model", "agent")}
    for agent_id, handle, usage in ask(
        f"SELECT agent_id, model_handle, usage FROM steps WHERE {_PRESENT}", organization
    ):
        used = json.loads(usage)
        for by, key in (("model", handle), ("agent", agent_id)):
            spent[by][key]["steps"] += 1
            spent[by][key]["tokens"] += used["total_tokens"]
            spent[by][key]["micros"] += used["cost_micros"]
            spent[by][key]["unpriced_calls"] += used["unpriced_calls"]
    for by, wanted in spent.items():
        told = await get(f"/v1/kelpie/spending?by={by}&days=366&limit=1000")
        key = "model" if by == "model" else "agent_id"
        shown = {each[key]: (each["steps"], each["tokens"], each["usd"], each["unpriced_calls"]) for each in told}
        sums = {
            name: (one["steps"], one["tokens"], one["micros"] / 1_000_000, one["unpriced_calls"])
            for name, one in wanted.items()
        }
        _is("spending", by, shown, sums)
        costs = [(each["usd"], each["tokens"]) for each in told]
        _is("spending", f"order by {by}", costs, sorted(costs, reverse=True))


async def _window_is_right(get: Get, ask: Ask, agent_id: str, lane: str) -> None:
    """An overview of a context counts what is in it and what was ever said."""
    query = f"?conversation_id={lane}" if lane else ""
    told = await get(f"/v1/agents/{agent_id}/context{query}")
    rows = ask(
        "SELECT message_id FROM context WHERE agent_id = ? AND conversation_id = ? ORDER BY position", agent_id, lane
    )
    ((said,),) = ask("SELECT count(*) FROM messages WHERE agent_id = ?", agent_id)
    where = f"{agent_id} {lane}"
    _is(where, "context", [each["id"] for each in told["messages"]], [message_id for (message_id,) in rows])
    counts = (told["num_messages"], told["num_recall_memory"])
    _is(where, "counts", counts, (len(rows), said))


def _is(where: str, what: str, shown: Any, stored: Any) -> None:
    if shown != stored:
        raise Broken("what is stored is shown", f"{what} of {where}: {shown} and not {stored}")
