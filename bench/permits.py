"""What the check of permissions and limits costs a call, beside a call that nobody bounds; prints JSON.

    python bench/permits.py [--times N]

In microseconds of processor time, which holds on a busy machine too. The lists are the longest there can be: 200
patterns in each of the three layers, of which only the last one matters, and limits with what is used of them. The
check of one call is what `kelpie.agent.tool_calls.call_plan` does for each call: find the tool and ask all layers;
`met for the first time` is one of a tool that nobody has asked about yet. `barred` is done a few times for a reply:
which of 100 tools may not be used at all.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from kelpie.agent.tool_calls.call_plan import denied_names
from kelpie.core.ids import ToolId
from kelpie.core.permissions.policies import NO_POLICY, OPEN, EffectivePermissions, Policy, warrant
from kelpie.core.permissions.quotas import Quota, QuotaUse
from kelpie.core.permissions.tool_permissions import PATTERNS_MAX, ToolPatterns
from kelpie.core.tools.tools import Tool, ToolType
from kelpie.tools.calls.capabilities import subject_of

TARGET_US = 100.0
TOOLS = 100


def lists(last: str) -> ToolPatterns:
    """The longest lists, whose last pattern is the one that matters."""
    names = tuple(f"tool_{number}_*" for number in range(PATTERNS_MAX - 1))
    return ToolPatterns(("*",), (*names, last))


def bounded(last: str) -> EffectivePermissions:
    layer = Policy(lists("nothing"), Quota(tool_calls=1_000_000))
    found = warrant(layer, layer, lists(last), Quota(tool_calls=1000, cpu_us=60_000_000))
    return EffectivePermissions(found.layers, found.quota, QuotaUse(10, 1000), 1)


def tool(number: int) -> Tool:
    name = f"some_tool_with_a_name_{number}"
    sandbox = {"egress": ["example.org"], "capabilities": ["messaging"]}
    return Tool(ToolId(f"tool-{number}"), name, ToolType.custom, {"name": name}, 0, 0, sandbox=sandbox)


def figures(work: Callable[[], Any], times: int) -> dict[str, float]:
    """Mean and worst of twenty rounds, in microseconds of processor time for each."""
    work()
    rounds: list[float] = []
    for _ in range(20):
        began = time.process_time_ns()
        for _ in range(times // 20):
            work()
        rounds.append((time.process_time_ns() - began) / (times // 20) / 1000)
    rounds.sort()
    return {"p50_us": round(rounds[10], 2), "max_us": round(rounds[-1], 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20_000)
    times = parser.parse_args().times
    one, many, free, caught = tool(0), [tool(number) for number in range(TOOLS)], bounded("nothing"), bounded("*_0")
    numbers = count(1)
    found: dict[str, Any] = {
        "nobody bounds it": figures(lambda: OPEN.refusal(subject_of(one)), times),
        "layers put together": figures(lambda: warrant(NO_POLICY, NO_POLICY, lists("nothing"), None), times // 20),
        "met for the first time": figures(lambda: free.refusal(subject_of(tool(next(numbers)))), times),
        "permitted": figures(lambda: free.refusal(subject_of(one)), times),
        "refused": figures(lambda: caught.refusal(subject_of(one)), times),
        f"barred of {TOOLS}": figures(lambda: denied_names(many, caught), times // 20),
    }
    worst = max(found[each]["p50_us"] for each in ("met for the first time", "permitted", "refused"))
    met = {"target_us": TARGET_US, "met": worst < TARGET_US}
    print(json.dumps({"check of one call": found, **met, "load": os.getloadavg()}, indent=2))


if __name__ == "__main__":
    main()
