"""Pages for people and the origins of web front ends: nothing is loaded from other hosts, nothing is shown without
login, and only allowed pages may use the API."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from kelpie import __version__
from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import Settings
from kelpie.server.pages.start_page import wants_json
from tests.server.rig import client_of, open_rig

FRONT_END, FOREIGN = "https://ui.example.com", "https://evil.example"
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


class _Loaded(HTMLParser):
    """The addresses that a page loads, and its inline scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        address = found.get("src") or (found.get("href") if tag == "link" else None)
        if address:
            self.loaded.append(address)
        inline = (tag == "script" and "src" not in found) or tag == "style" or "style" in found
        self.inline += inline or any(name.startswith("on") for name in found)


async def test_pages_load_nothing_from_other_hosts(client: httpx.AsyncClient) -> None:
    here = str(client.base_url)
    for path in ("/", "/docs"):
        shown = await client.get(path, headers=BROWSER)
        assert shown.status_code == 200 and shown.headers["content-type"].startswith("text/html")
        directives = [part.strip().partition(" ") for part in shown.headers["content-security-policy"].split(";")]
        policy = {name: value for name, _, value in directives}
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert "unsafe" not in policy.get("script-src", "") and "http" not in " ".join(policy.values())
        assert shown.headers["x-content-type-options"] == "nosniff"
        page = _Loaded()
        page.feed(shown.text)
        assert page.loaded and page.inline == 0
        for address in page.loaded:
            target = urljoin(f"{here.rstrip('/')}{path}", address)
            assert urlsplit(target).netloc == urlsplit(here).netloc
            loaded = await client.get(target)
            assert loaded.status_code == 200 and len(loaded.content) > 100, target
            if loaded.headers["content-type"].startswith("text/css"):
                assert re.findall(r"@import|url\(\s*['\"]?(?!data:)[^)'\"]+", loaded.text) == []
    script = (await client.get("/docs/start.js")).text
    assert "http" not in script and "validatorUrl: null" in script


async def test_the_start_page_says_what_runs_and_shows_no_data(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"host": "0.0.0.0", "password": "hush-hush", "secure": True, "dashboard": False}
    async with open_rig(tmp_path, **settings) as (kelpie, _), client_of(kelpie, describes_itself=True) as client:
        agent = await make_agent_with(client, "hush-hush", "very-private")
        page = (await client.get("/", headers=BROWSER)).text
        facts = (await client.get("/", headers={"Accept": "application/json"})).json()
        document = (await client.get("/openapi.json")).json()
        refused = await client.get("/v1/agents/")
    assert refused.status_code == 401
    for text in (page, str(facts), str(document)):
        assert not any(
            secret in text for secret in ("hush-hush", "very-private", agent["id"], "fake/model", str(tmp_path))
        )
    assert __version__ in page and "0.16.8" in page and 'href="docs"' in page and "kelpie chat" in page
    assert (facts["version"], facts["kelpie_version"], facts["login_required"]) == ("0.16.8", __version__, True)
    assert facts["models_configured"] is True
    assert document["security"] == [{}, {"bearer": []}]
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


async def make_agent_with(client: httpx.AsyncClient, password: str, name: str) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {password}"}
    made = await client.post("/v1/agents/", json={"name": name}, headers=headers)
    assert made.status_code == 200, made.text
    return made.json()


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        ("", False),
        ("*/*", False),
        (BROWSER["Accept"], False),
        ("application/json", True),
        ("application/json, text/plain, */*", True),
        ("text/html, application/json", False),
        ("Application/JSON;q=0.9", True),
    ],
)
def test_clients_that_ask_for_json_get_it(accept: str, json: bool) -> None:
    assert wants_json(accept) is json


def asking(origin: str) -> dict[str, str]:
    """The headers of a preflight, as a browser sends them before a request of the TypeScript SDK."""
    return {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
        "Access-Control-Request-Private-Network": "true",
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "cors",
    }


async def test_a_configured_front_end_may_use_the_api_and_no_other_page(tmp_path: Path) -> None:
    async with open_rig(tmp_path, allowed_origins=(f"{FRONT_END}/",)) as (kelpie, _), client_of(kelpie) as client:
        preflight = await client.options("/v1/agents/", headers=asking(FRONT_END))
        made = await client.post("/v1/agents/", json={"name": "a"}, headers={"Origin": FRONT_END})
        for origin in (FOREIGN, f"{FRONT_END}:8443", FRONT_END.replace("https", "http"), f"{FRONT_END}.evil.example"):
            assert (await client.options("/v1/agents/", headers=asking(origin))).status_code == 403
            refused = await client.post("/v1/agents/", json={"name": "b"}, headers={"Origin": origin})
            assert refused.status_code == 403 and "server.allowed_origins" in refused.json()["detail"]
            assert "access-control-allow-origin" not in refused.headers
        assert [each["name"] for each in (await client.get("/v1/agents/")).json()] == ["a"]
    assert preflight.status_code == 200 and made.status_code == 200
    assert preflight.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-lang"
    assert preflight.headers["access-control-allow-private-network"] == "true"
    for answer in (preflight, made):
        assert answer.headers["access-control-allow-origin"] == FRONT_END
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert "Origin" in answer.headers["vary"]


async def test_with_a_password_other_pages_get_no_credentials_of_the_browser(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"host": "0.0.0.0", "password": "pw", "allowed_origins": (FRONT_END,)}
    async with open_rig(tmp_path, **settings) as (kelpie, _), client_of(kelpie) as client:
        own = await client.options("/v1/agents/", headers=asking(FRONT_END))
        other = await client.options("/v1/agents/", headers=asking(FOREIGN))
    assert own.headers["access-control-allow-credentials"] == "true"
    assert other.status_code == 200 and "access-control-allow-credentials" not in other.headers


@pytest.mark.parametrize("origin", ["*", "ui.example.com", "https://ui.example.com/path", "null", "file:///x"])
def test_what_is_no_origin_cannot_be_allowed(origin: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an origin"):
        Settings.from_environment({"KELPIE_ALLOWED_ORIGINS": f"https://a.example, {origin}"})


def test_the_name_of_lettas_setting_is_read_too() -> None:
    found = Settings.from_environment({"ACCEPTABLE_ORIGINS": f"{FRONT_END},http://b.example:81"})
    assert found.allowed_origins == (FRONT_END, "http://b.example:81")
