"""Projects in the dashboard: created, filtered, edited, filled with agents, and deleted with or without them."""

from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.dashboard.accessibility import violations
from tests.dashboard.agents import make_agent
from tests.dashboard.watched import Watched

HOSTILE = "<img src=x onerror=alert(1)>"
WIDTHS = (380, 1024, 1920)


def make_project(api: httpx.Client, name: str, *agents: str, **fields: object) -> dict[str, object]:
    answer = api.post("/v1/projects", json={"name": name} | fields)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    if agents:
        api.post(f"/v1/projects/{made['id']}/agents", json={"agent_ids": agents})
    return made


def test_a_project_is_made_filled_changed_and_deleted(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    agent = make_agent(api, "gardener", description="waters the plants")
    page = watched.open("#/projects?owner=team%20green")
    expect(page.get_by_text("No projects here.")).to_be_visible()
    assert violations(page) == []
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("garden")
    dialog.get_by_label("Description").fill("all that grows")
    dialog.get_by_label("Tags").fill("plants, summer")
    dialog.get_by_label("Owner").fill("team green")
    dialog.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("garden")
    expect(page.get_by_text("No agents are in this project.")).to_be_visible()
    [made] = api.get("/v1/projects", params={"owner": "team green"}).json()
    assert page.url.endswith(f"#/projects/{made['id']}")
    assert (made["owner"], sorted(made["tags"])) == ("team green", ["plants", "summer"])

    page.get_by_role("button", name="Add agent").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose an agent")
    page.get_by_label("Agent", exact=True).fill("gardener")
    expect(page.locator("datalist option[value='gardener']")).to_have_count(1)
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Add agent").click()
    rows = page.get_by_role("table", name="Agents").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("waters the plants")
    assert [each["id"] for each in api.get(f"/v1/projects/{made['id']}/agents").json()] == [agent["id"]]
    assert violations(page) == []
    screenshot(page, "project")

    page.get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("Name").fill("orchard")
    page.get_by_role("dialog").get_by_label("Tags").fill("fruit")
    page.get_by_role("dialog").get_by_role("button", name="Save changes").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orchard")
    page.get_by_role("button", name="Remove gardener").click()
    expect(page.get_by_text("No agents are in this project.")).to_be_visible()
    assert api.get(f"/v1/agents/{agent['id']}").status_code == 200
    page.get_by_role("link", name="fruit").click()
    expect(page.get_by_label("Tag")).to_have_value("fruit")
    expect(page.get_by_role("table", name="Projects").locator("tbody tr")).to_have_count(1)
    page.get_by_label("Tag").fill("iron")
    expect(page.get_by_text("No projects here.")).to_be_visible()
    page.go_back()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete project").click()
    expect(page.get_by_role("status").filter(has_text="Deleted project orchard")).to_be_visible()
    assert api.get(f"/v1/projects/{made['id']}").status_code == 404


def test_agents_of_a_project_are_deleted_only_after_a_second_question(api: httpx.Client, watched: Watched) -> None:
    agents = [make_agent(api, f"leaf {place}", include_base_tools=False)["id"] for place in range(2)]
    project = make_project(api, "autumn", *agents)
    page = watched.open(f"#/projects/{project['id']}")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Delete its 2 agents too").check()
    dialog.get_by_role("button", name="Delete project").click()
    second = page.get_by_role("dialog", name="Delete project and agents")
    second.get_by_label("Name of the project").fill("winter")
    second.get_by_role("button", name="Delete project and 2 agents").click()
    expect(second.get_by_role("alert")).to_contain_text("not the name")
    assert violations(page) == []
    assert len(api.get(f"/v1/projects/{project['id']}/agents").json()) == 2
    second.get_by_label("Name of the project").fill("autumn")
    second.get_by_role("button", name="Delete project and 2 agents").click()
    expect(page.get_by_role("status").filter(has_text="Deleted project autumn")).to_be_visible()
    assert [api.get(f"/v1/agents/{each}").status_code for each in agents] == [404, 404]


def test_projects_are_paged_by_the_server_and_hostile_ones_are_only_text(
    api: httpx.Client, watched: Watched, screenshot: Callable[[Page, str], Path]
) -> None:
    for place in range(53):
        make_project(api, f"project {place:02d}", owner="crowd")
    evil = make_agent(api, HOSTILE[:28], include_base_tools=False)
    project = make_project(
        api,
        HOSTILE + "w" * 150,
        str(evil["id"]),
        description=f"{HOSTILE}\u202egnp\x1b[31mred\n" * 20,
        tags=[HOSTILE, "t" * 60],
        owner="crowd",
    )
    page = watched.open("#/projects?owner=crowd")
    rows = page.get_by_role("table", name="Projects").locator("tbody tr")
    expect(rows).to_have_count(50)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        screenshot(page, f"projects-{width}")
    page.get_by_role("button", name="Next page").click()
    expect(rows).to_have_count(4)
    page = watched.open(f"#/projects/{project['id']}")
    expect(page.get_by_role("table", name="Agents").locator("tbody tr")).to_have_count(1)
    assert page.evaluate("document.images.length") == 0
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        screenshot(page, f"project-hostile-{width}")
    assert violations(page) == []
