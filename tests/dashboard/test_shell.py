"""The shell of the dashboard as a person meets it: it opens, moves by keyboard, changes its colors and stays alone."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.dashboard.accessibility import violations
from tests.dashboard.watched import Watched


def test_the_page_opens_on_its_first_screen_without_violations(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("navigation", name="Screens")).to_be_visible()
    assert violations(page) == []


def test_the_keyboard_shows_its_help_and_moves_between_screens(watched: Watched) -> None:
    page = watched.open("#/health")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Go to Agents")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("a")
    expect(page).to_have_url("".join((page.url.partition("#")[0], "#/agents")))
    page.keyboard.press("Tab")


def test_colors_follow_the_system_unless_a_person_chooses(visit: Callable[..., Watched]) -> None:
    page = visit(color_scheme="dark").open()
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_label("Colors").select_option("light")
    light = page.evaluate(ground)
    assert dark != light
    page.reload()
    expect(page.get_by_label("Colors")).to_have_value("light")
    assert page.evaluate(ground) == light


def test_a_phone_has_a_menu(visit: Callable[..., Watched]) -> None:
    page = visit(viewport={"width": 380, "height": 700}).open()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("navigation", name="Screens")).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    expect(page.get_by_role("navigation", name="Screens")).to_be_visible()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
