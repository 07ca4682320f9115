"""How long the screens of the dashboard take to show their content: on a server with few agents and on one with many.

    python bench/dashboard.py                      with 10 and with 10,000 agents
    python bench/dashboard.py --data DIR           keeps both data directories in DIR, and uses those of an earlier run

Prints JSON. Both servers run at the same time, and one page of each takes turns. For each screen: milliseconds from the
click (the address changes, as a link in the navigation does it) until its content stands in the page and is painted,
median and the 90th percentile of the rounds after the first, which loads the script of the screen. `agents_search` is
a search for one name, `runs_agent` the runs of one agent. `slowest` is the screen with the highest median on the
server with many agents. Needs the browser of the tests (chromium and playwright). The model is bench/fake_model.py.
"""

import argparse
import asyncio
import json
import shutil
import sys
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from playwright.async_api import Page, async_playwright

from load.server import Server, Started
from many_agents import NO_MODEL, Population, name, stored_ids

TURNS = 200  # so that runs, usage and histories are not empty
WIDTH, HEIGHT = 1280, 800
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

# The place of each screen, and what stands in it when its content does.
SCREENS = {
    "chat": ("#/chat/{agent}", ".entry"),
    "agents": ("#/agents", "tbody tr"),
    "agents_search": ("#/agents?search={name}", "tbody tr"),
    "agent": ("#/agents/{agent}", "dl.facts"),
    "runs": ("#/runs", "tbody tr"),
    "runs_agent": ("#/runs?agent={agent}", "tbody tr"),
    "run": ("#/runs/{run}", ".entry"),
    "prompt": ("#/prompt/{agent}", "summary.part"),
    "memory": ("#/memory/{agent}", ".card pre"),
    "passages": ("#/memory/{agent}/passages", ".empty"),
    "inbox": ("#/inbox", ".empty:not([hidden])"),
    "schedules": ("#/schedules", ".empty"),
    "usage": ("#/usage", "figure"),
    "tools": ("#/tools", "tbody tr"),
    "calls": ("#/tools/calls", ".paged .empty, tbody tr"),
    "health": ("#/health", "dl.facts"),
    "access": ("#/access", ".empty"),
    "transfer": ("#/transfer", "input"),
    "logs": ("#/logs", ".log-line"),
}
SHOW = """async ([place, selector]) => {
  const main = document.querySelector("main");
  const before = main.firstElementChild;
  const from = performance.now();
  location.hash = place;
  for (;;) {
    const now = main.firstElementChild;
    if (now !== before && now?.querySelector(selector) && !now.querySelector("[aria-busy]")) break;
    if (performance.now() - from > 20000) throw new Error(`${place} shows no ${selector}`);
    await new Promise((resolve) => setTimeout(resolve));
  }
  await new Promise(requestAnimationFrame);
  return performance.now() - from;
}"""


class Subject:
    """A server with its agents, and a page that shows it."""

    def __init__(self, agents: int, tree: Path | None, data: Path | None) -> None:
        if data is not None:
            data.mkdir(parents=True, exist_ok=True)
        self.agents = agents
        self.house = Started(0, tree, NO_MODEL, data)
        self.found: dict[str, list[float]] = {}

    async def prepare(self) -> None:
        await self.house.ready_s()
        server = Server(self.house.url, self.house.process.pid, "openai/gpt-4o-mini")
        population = Population(server, stored_ids(self.house.database_file))
        await population.grow(self.agents)
        ids = population.ids
        for number in range(TURNS):
            await server.send(ids[number * 97 % len(ids)])
        [run] = json.loads(await server.lean.call("GET", f"/v1/runs/?agent_id={ids[0]}&limit=1"))
        self.names = {"agent": ids[0], "name": name(0)[6:13], "run": run["id"]}

    async def round(self, page: Page) -> None:
        for screen, (place, selector) in SCREENS.items():
            await page.evaluate("location.hash = '#/steps/none'")  # a screen that asks for nothing that exists
            await page.wait_for_selector("main .failure")
            took: float = await page.evaluate(SHOW, [place.format(**self.names), selector])
            self.found.setdefault(screen, []).append(took)

    def figures(self) -> dict[str, Any]:
        return {
            screen: {"median_ms": round(median(all_ms[1:])), "p90_ms": round(quantiles(all_ms[1:], n=10)[-1])}
            for screen, all_ms in self.found.items()
        }


async def run(few: int, many: int, rounds: int, tree: Path | None, data: Path | None) -> dict[str, Any]:
    subjects: dict[str, Subject] = {}
    try:
        for each, agents in (("few", few), ("many", many)):
            subjects[each] = Subject(agents, tree, data and data / each)
            await subjects[each].prepare()
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            pages: dict[str, Page] = {}
            for each, subject in subjects.items():
                pages[each] = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                await pages[each].goto(f"{subject.house.url}/#/agents")
                await pages[each].wait_for_selector("main tbody tr")
            for number in range(rounds + 1):
                for each in list(subjects) if number % 2 else list(reversed(subjects)):
                    await subjects[each].round(pages[each])
            await browser.close()
    finally:
        for subject in subjects.values():
            subject.house.stop()
    figures = {each: {"agents": subject.agents, "screens": subject.figures()} for each, subject in subjects.items()}
    screens = figures["many"]["screens"]
    return figures | {"slowest": max(screens, key=lambda screen: screens[screen]["median_ms"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tree", type=Path, help="another checkout whose server is measured")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keeps the data directories here")
    args = parser.parse_args()
    if shutil.which("chromium") is None:
        print(json.dumps({"skipped": "chromium is not installed"}))
        return
    json.dump(asyncio.run(run(args.few, args.many, args.rounds, args.tree, args.data)), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
