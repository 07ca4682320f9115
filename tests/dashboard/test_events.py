"""Many events: 20,000 pieces of a stream, and a long history, without a frozen page and without growing for ever."""

import httpx
from playwright.sync_api import expect

from tests.dashboard.agents import make_agent, script
from tests.dashboard.watched import Watched

PIECES = 20_000
ENTRIES_MAX = 420


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
    expect(page.locator(".usage")).to_be_visible(timeout=120_000)
    expect(page.get_by_role("article", name="Agent")).to_contain_text("w0 w1 w2")
    page.get_by_role("button", name="Show all").last.click()
    expect(page.get_by_role("article", name="Agent")).to_contain_text(f"w{PIECES - 1}")


def test_a_stream_of_many_messages_keeps_a_bounded_page(api: httpx.Client, watched: Watched) -> None:
    agent = make_agent(api, "busy", memory_blocks=[{"label": "human", "value": "x"}])
    page = watched.open(f"#/chat/{agent['id']}")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    page.evaluate(_FEED, 1000)
    expect(page.get_by_text("answer 999")).to_be_visible()
    expect(page.get_by_text("answer 0", exact=True)).to_have_count(0)
    assert page.locator(".entry").count() <= ENTRIES_MAX
    expect(page.get_by_role("button", name="Show earlier messages")).to_be_attached()


# Frames as a server sends them, for a thousand messages of seven pieces each.
_FEED = """(messages) => {
  const transcript = document.querySelector("kelpie-transcript");
  let at = 0;
  const some = () => {
    for (const end = Math.min(at + 50, messages); at < end; at += 1) {
      for (const piece of ["ans", "wer ", ...String(at)]) {
        const frame = { message_type: "assistant_message", id: `m${at}`, otid: `o${at}`, run_id: "run-x" };
        transcript.frame({ ...frame, content: piece });
      }
    }
    if (at < messages) setTimeout(some);
  };
  some();
}"""
