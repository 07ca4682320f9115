"""Many events: 20,000 pieces of a stream, and a long history, without a frozen page and without growing for ever."""

from typing import Any

import httpx
from playwright.sync_api import Page, expect

from tests.dashboard.agents import make_agent, script
from tests.dashboard.watched import Watched

PIECES = 20_000
LONG_MS = 120_000
ROUNDS = 900
STORED = 20_000
ENTRIES_MAX = 420
ROLES = ("assistant", "user")


def test_twenty_thousand_pieces_do_not_freeze_the_page(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "endless")
    page = watched.open(f"#/chat/{agent['id']}")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    text = " ".join(f"w{place}" for place in range(PIECES))
    page.get_by_role("textbox", name="Message").fill(script({"text": text}))
    page.keyboard.press("Enter")
    expect(page.get_by_role("article", name="Agent")).to_contain_text("This message is long")
    page.keyboard.type("I write while it comes")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("I write while it comes")
    expect(page.locator(".usage")).to_be_visible(timeout=LONG_MS)
    expect(page.get_by_role("article", name="Agent")).to_contain_text("w0 w1 w2")
    page.get_by_role("button", name="Show all").last.click()
    expect(page.get_by_role("article", name="Agent")).to_contain_text(f"w{PIECES - 1}")


def test_a_stream_for_an_hour_keeps_a_bounded_page(api: httpx.Client, watched: Watched) -> None:
    """5,400 frames of reasoning, calls, results and answers. What the page holds after a third of them is what it
    holds after all, and it still takes what a person types."""
    agent = make_agent(api, "busy", memory_blocks=[{"label": "human", "value": "x"}])
    page = watched.open(f"#/chat/{agent['id']}")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    page.evaluate(_FEED, [0, ROUNDS // 3])
    expect(page.get_by_text(f"answer {ROUNDS // 3 - 1}", exact=True)).to_be_visible(timeout=LONG_MS)
    early = held_by(page)
    page.evaluate(_FEED, [ROUNDS // 3, ROUNDS])
    page.get_by_role("textbox", name="Message").press_sequentially("I write")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("I write")
    expect(page.get_by_text(f"answer {ROUNDS - 1}", exact=True)).to_be_visible(timeout=LONG_MS)
    late = held_by(page)
    assert page.locator(".entry").count() <= ENTRIES_MAX
    assert late["Nodes"] < early["Nodes"] * 1.2, (early, late)
    assert late["JSEventListeners"] < early["JSEventListeners"] * 1.2, (early, late)
    assert late["JSHeapUsedSize"] < early["JSHeapUsedSize"] * 1.2 + 1_000_000, (early, late)
    expect(page.get_by_text("answer 0", exact=True)).to_have_count(0)
    expect(page.get_by_role("button", name="Show earlier messages")).to_be_attached()


def test_a_history_of_twenty_thousand_events_comes_in_pages(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "old")
    for first in range(0, STORED, 1000):
        rows = [{"role": ROLES[place % 2], "content": f"line {place:05d}"} for place in range(first, first + 1000)]
        body = {"provider": "test", "model": "m", "request_messages": rows, "response_dict": {}}
        captured = api.post(f"/v1/agents/{agent['id']}/messages/capture", json=body).json()
        assert captured["messages_created"] == 1000
    page = watched.open(f"#/chat/{agent['id']}")
    expect(page.get_by_text(f"line {STORED - 1}")).to_be_visible()
    expect(page.get_by_role("button", name="Show earlier messages")).to_be_attached()
    assert page.locator(".entry").count() == 50
    for shown in (100, 150, 200):
        page.get_by_role("button", name="Show earlier messages").click()
        expect(page.get_by_text(f"line {STORED - shown}")).to_have_count(1)
    assert page.locator(".entry").count() == 200
    page.get_by_role("textbox", name="Message").fill(script({"text": "still here"}))
    page.keyboard.press("Enter")
    expect(page.get_by_text("still here", exact=True)).to_be_visible()


def held_by(page: Page) -> dict[str, float]:
    """What the page holds after its garbage is collected: nodes, listeners, bytes of the heap."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    found: Any = session.send("Performance.getMetrics")
    session.detach()
    return {each["name"]: each["value"] for each in found["metrics"]}


# Frames as a server sends them: a step with a call, then one with an answer in two pieces.
_FEED = """([from, to]) => {
  const transcript = document.querySelector("kelpie-transcript");
  let at = from;
  const some = () => {
    for (const end = Math.min(at + 50, to); at < end; at += 1) {
      const of = (kind, more) => transcript.frame({ message_type: kind, id: `m${at}`, run_id: "run-x", ...more });
      const call = { tool_call_id: `c${at}`, name: "memory_insert", arguments: `{"new_string": "${at}"}` };
      of("reasoning_message", { reasoning: "I should note it.", otid: `r${at}` });
      of("tool_call_message", { tool_call: call, tool_calls: call, otid: `t${at}` });
      of("tool_return_message", { tool_call_id: `c${at}`, status: "success", tool_return: "done", otid: `e${at}` });
      of("assistant_message", { content: "answer ", otid: `a${at}`, id: `n${at}` });
      of("assistant_message", { content: String(at), otid: `a${at}`, id: `n${at}` });
      of("usage_statistics", { total_tokens: 10, step_count: 2, kelpie_cost_usd: 0 });
    }
    if (at < to) setTimeout(some);
  };
  some();
}"""
