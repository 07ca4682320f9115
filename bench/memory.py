"""What working memory and checkpoints cost through HTTP, on a server of our own; prints JSON.

    python bench/memory.py [--times N]

A typical agent has 5 blocks, 20 entries of working memory, 100 passages and 200 messages. `cpu_ms` is the server's own
and holds on a busy machine too; the other figures need a quiet one, and the load average beside them tells.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from load.server import Server, Started, measure

BLOCKS, ENTRIES, PASSAGES, MESSAGES = 5, 20, 100, 200
REST_S_MAX, LOOK_S, IDLE_LOOKS, IDLE_SHARE = 300.0, 2.0, 5, 0.02
TEXT = "A sentence of the kind that people store, with a few words in it that a search may look for. " * 3


async def typical(server: Server) -> str:
    """An agent as most are."""
    blocks = [{"label": f"block{number}", "value": TEXT * 3} for number in range(BLOCKS)]
    made = await server.lean.call("POST", "/v1/agents/", {"model": server.model, "memory_blocks": blocks})
    agent = f"/v1/agents/{json.loads(made)['id']}"
    for number in range(ENTRIES):
        body = {"value": {"number": number, "text": TEXT}, "ttl_seconds": 3600 * (number + 1)}
        await server.lean.call("PUT", f"{agent}/working-memory/key{number}", body)
    for number in range(PASSAGES):
        await server.lean.call("POST", f"{agent}/archival-memory", {"text": f"{number} {TEXT}", "tags": ["a", "b"]})
    while len(await messages(server, agent)) < MESSAGES:
        await server.lean.call("POST", f"{agent}/messages", {"input": TEXT})
    return agent


async def at_rest(server: Server) -> None:
    """Waits until the server has nothing to do: what it embeds in the background is not what is measured here."""
    async with asyncio.timeout(REST_S_MAX):
        idle = 0
        while idle < IDLE_LOOKS:
            before = server.cpu_s()
            await asyncio.sleep(LOOK_S)
            idle = idle + 1 if server.cpu_s() - before < IDLE_SHARE * LOOK_S else 0


async def messages(server: Server, agent: str) -> list[Any]:
    document = json.loads(await server.get(f"{agent}/memory/checkpoint"))
    return document["memory"]["messages"]


async def working_memory(server: Server, agent: str, times: int) -> dict[str, Any]:
    path = f"{agent}/working-memory"

    def asking(method: str, key: str = "", body: Any = None) -> Callable[[], Awaitable[Any]]:
        return lambda: server.lean.call(method, f"{path}{key}", body)

    await measure(server, [asking("PUT", "/key1", {"value": 1})] * 20)  # so that the first use is not counted
    return {
        "get": await measure(server, [asking("GET", "/key1")] * times),
        "set": await measure(server, [asking("PUT", "/key1", {"value": {"text": TEXT}})] * times),
        "increment": await measure(server, [asking("PATCH", "/count", {"increment": 1})] * times),
        "list": await measure(server, [asking("GET")] * times),
    }


async def checkpoints(server: Server, agent: str, times: int) -> dict[str, Any]:
    document = json.loads(await server.get(f"{agent}/memory/checkpoint"))
    memory = document["memory"]
    changes = [{"value": f"changed {number}"} for number in range(times)]

    async def wreck_and_restore(number: int) -> None:
        await server.lean.call("PATCH", f"{agent}/core-memory/blocks/block0", changes[number])
        await server.lean.call("POST", f"{agent}/memory/restore", document)

    return {
        "bytes": len(json.dumps(document)),
        "messages": len(memory["messages"]),
        "passages": len(memory["archive"]["passages"]),
        "take": await measure(server, [lambda: server.get(f"{agent}/memory/checkpoint")] * times),
        "change_a_block_and_restore": await measure(
            server, [lambda number=number: wreck_and_restore(number) for number in range(times)]
        ),
    }


async def run(times: int) -> dict[str, Any]:
    load, house = os.getloadavg(), Started(0.0)
    try:
        await house.ready_s()
        server = Server(house.url, house.process.pid, "openai/gpt-4o-mini")
        agent = await typical(server)
        await at_rest(server)
        out = {"working_memory": await working_memory(server, agent, times)}
        out["checkpoint"] = await checkpoints(server, agent, max(1, times // 10))
        await server.http.aclose()
    finally:
        house.stop()
    return out | {"load_average": {"before": load, "after": os.getloadavg()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=500, help="how often each thing is asked for")
    print(json.dumps(asyncio.run(run(parser.parse_args().times)), indent=2))


if __name__ == "__main__":
    main()
