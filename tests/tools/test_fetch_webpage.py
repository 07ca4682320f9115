"""`fetch_webpage`: the text of real kinds of pages, addresses that it must not reach, and pages that are made to hurt.

Pages are read by real worker processes.
"""

import asyncio
import gzip
import io
import random
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pypdf
import pytest
import pytest_asyncio
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from kelpie.core.errors import Overloaded, ToolError
from kelpie.core.permissions.quotas import Quota
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.tools import Tool
from kelpie.tools.builtin import BUILTINS
from kelpie.tools.calls.interface import CallContext
from kelpie.tools.web import page_reader
from kelpie.tools.web.fetch_webpage import FetchWebpage
from kelpie.world.database import Database
from kelpie.world.files.uploads import Upload
from kelpie.world.http.port import NetworkHttp
from kelpie.world.ids import SeededIds
from kelpie.world.processes.processes import SystemProcesses
from kelpie.world.workers.port import WorkerFailed, WorkerFault, WorkerProgram
from kelpie.world.workers.processes import ProcessWorkers
from kelpie.world.world import World
from tests.tools.web_server import Asked, WebServer, answer, open_web_server, silent
from tests.tools.workshop import ANN, NOW, TickingClock, make_agent

TOOL: Tool = BUILTINS["fetch_webpage"].row(make_agent(ANN).organization_id, NOW)
MEGABYTE = 1024 * 1024
ARTICLE = """<!doctype html><html><head><title>All about
 tea</title></head><body>
<nav><a href="/">Home</a> <a href="/shop">Shop</a> <a href="/login">Log in</a></nav>
<article><h1>Tea</h1>
<p>Tea is an aromatic beverage prepared by pouring hot water over cured leaves, and people have drunk it for ages.</p>
<h2>History</h2>
<p>It began in the borderlands of China, and <a href="/trade">the trade</a> carried it over mountains and seas.</p>
<ul><li>green</li><li>black</li></ul>
<table><tr><th>kind</th><th>minutes</th></tr><tr><td>green</td><td>2</td></tr></table>
</article><footer>Copyright and cookies</footer><script>alert("x")</script></body></html>"""
WORDS = "Tea is made of leaves and water, and a little patience. " * 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers() -> AsyncIterator[ProcessWorkers]:
    found = ProcessWorkers()
    yield found
    await found.close()


@pytest_asyncio.fixture(loop_scope="module")
async def web() -> AsyncIterator[WebServer]:
    async with open_web_server() as opened:
        yield opened


pytestmark = pytest.mark.asyncio(loop_scope="module")


def fetching(workers: ProcessWorkers, **settings: Any) -> FetchWebpage:
    rng = random.Random(1)
    world = World(TickingClock(), SeededIds(rng), rng, Database, NetworkHttp(), SystemProcesses(), workers=workers)  # pyright: ignore[reportArgumentType]
    return FetchWebpage(world, replace(Settings(), **{"web_private": True, **settings}))


async def fetch(tool: FetchWebpage, url: str, **context: Any) -> str:
    async with asyncio.timeout(60):
        return (await tool(TOOL, CallContext(make_agent(ANN), NOW, "x", **context), {"url": url})).text


async def failure(tool: FetchWebpage, url: str, **context: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await fetch(tool, url, **context)
    return str(caught.value)


def pdf(*pages: str, password: str = "") -> bytes:
    writer = pypdf.PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(300, 300)
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = stream
    writer.add_metadata({"/Title": "A paper"})
    if password:
        writer.encrypt(password)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


async def test_an_article_becomes_markdown_without_what_surrounds_it(web: WebServer, workers: ProcessWorkers) -> None:
    web.routes["/tea"] = answer(ARTICLE)
    text = await fetch(fetching(workers), f"{web.url}/tea#history")
    assert text.startswith(f"Title: All about tea\nURL: {web.url}/tea\n\n")
    for part in ("## History", f"[the trade]({web.url}/trade)", "- green", "| green | 2 |"):
        assert part in text
    assert "alert" not in text and "cookies" not in text
    [asked] = web.asked
    assert asked.headers["user-agent"].startswith("Kelpie/") and asked.target == "/tea"
    assert not {"cookie", "authorization"} & asked.headers.keys()


async def test_short_pages_and_pages_without_an_article_have_their_text(
    web: WebServer, workers: ProcessWorkers
) -> None:
    web.routes["/short"] = answer("<html><title>Hi</title><body><p>Just this.</p></body></html>")
    assert "Just this." in await fetch(fetching(workers), f"{web.url}/short")
    web.routes["/none"] = answer("<html><body><div id=root></div><script>1</script></body></html>")
    assert "made by scripts" in await failure(fetching(workers), f"{web.url}/none")


async def test_texts_are_passed_on_as_they_are(web: WebServer, workers: ProcessWorkers) -> None:
    tool = fetching(workers)
    for kind, body in (
        ("application/json", '{"a": [1, 2]}'),
        ("text/markdown; charset=utf-8", "# Tea\n\n- grün"),
        ("text/plain", "a\r\nb"),
        ("application/atom+xml", '<!DOCTYPE x [<!ENTITY a "b">]><feed>&a;</feed>'),
        ("", "no type at all"),
    ):
        web.routes["/x"] = answer(body, kind)
        assert (await fetch(tool, f"{web.url}/x")).endswith("\n\n" + body.replace("\r\n", "\n"))
    web.routes["/x"] = answer(ARTICLE, "application/octet-stream")
    assert "## History" in await fetch(tool, f"{web.url}/x")


async def test_character_sets(web: WebServer, workers: ProcessWorkers) -> None:
    tool, body = fetching(workers), f"<title>Grüße</title><p>Straße, 茶: {WORDS}</p>"
    page = f"<html><head>{body}</html>"
    cases = [
        (page.encode(), "text/html"),
        (page.encode("utf-16"), "text/html"),
        (page.encode("gb18030"), "text/html; charset=gb2312"),
        (page.replace("<head>", "<head><meta charset=gbk>").encode("gb18030"), "text/html"),
    ]
    for data, kind in cases:
        web.routes["/x"] = answer(data, kind)
        text = await fetch(tool, f"{web.url}/x")
        assert text.startswith("Title: Grüße\n") and "Straße, 茶" in text
    web.routes["/x"] = answer("Straße".encode("cp1252"), "text/plain")
    assert "Straße" in await fetch(tool, f"{web.url}/x")
    for codec in ("punycode", "idna", "unicode_escape", "zlib", "hex", "x" * 40):  # not one of the web's
        web.routes["/x"] = answer("Straße", f"text/plain; charset={codec}")
        assert "Straße" in await fetch(tool, f"{web.url}/x")


async def test_compressed_pages(web: WebServer, workers: ProcessWorkers) -> None:
    tool, raw = fetching(workers), zlib.compressobj(wbits=-15)
    bodies = {
        "gzip": gzip.compress(ARTICLE.encode()),
        "deflate": zlib.compress(ARTICLE.encode()),
        "Deflate": raw.compress(ARTICLE.encode()) + raw.flush(),
    }
    for encoding, body in bodies.items():
        web.routes["/x"] = answer(body, headers={"content-encoding": encoding})
        assert "## History" in await fetch(tool, f"{web.url}/x")
    for encoding, told in (("br", "was not asked for"), ("gzip", "not compressed")):
        web.routes["/x"] = answer(b"\x1b\x00", headers={"content-encoding": encoding})
        assert told in await failure(tool, f"{web.url}/x")
    web.routes["/x"] = answer(bodies["gzip"][:-20], headers={"content-encoding": "gzip"})
    assert "incomplete" in await failure(tool, f"{web.url}/x")


async def test_pdf(web: WebServer, workers: ProcessWorkers) -> None:
    tool = fetching(workers)
    web.routes["/x"] = answer(pdf("Tea is good", "and so is water"), "application/pdf")
    text = await fetch(tool, f"{web.url}/x")
    assert text == f"Title: A paper\nURL: {web.url}/x\n\nTea is good\n\nand so is water"
    web.routes["/x"] = answer(pdf(*["page"] * 203), "binary/octet-stream")
    assert "Note: Only the first 200 of 203 pages were read." in await fetch(tool, f"{web.url}/x")
    for body, told in (
        (pdf("secret", password="x"), "encrypted"),
        (pdf(""), "no text"),
        (b"%PDF-1.7\n" + bytes(range(256)) * 40, "damaged"),
        (pdf("cut short")[:200], "damaged"),
    ):
        web.routes["/x"] = answer(body, "application/pdf")
        assert told in await failure(tool, f"{web.url}/x")


async def test_other_types_and_errors_are_told(web: WebServer, workers: ProcessWorkers) -> None:
    tool = fetching(workers)
    web.routes["/x"] = answer(b"\x89PNG", "image/png")
    assert "of the type image/png, which has no text" in await failure(tool, f"{web.url}/x")
    web.routes["/x"] = answer(b"\0\1\2", "application/octet-stream")
    assert "binary file" in await failure(tool, f"{web.url}/x")
    assert "answered with status 404" in await failure(tool, f"{web.url}/missing")
    assert "connection refused" in await failure(tool, "http://127.0.0.1:1025/")


async def test_redirects_are_followed_a_few_times(web: WebServer, workers: ProcessWorkers) -> None:
    web.routes["/tea"] = answer(ARTICLE)
    for at, status in enumerate((301, 302, 303, 307, 308)):
        target = "/tea" if at == 4 else f"/{at + 1}"
        web.routes[f"/{at}"] = answer("", status=status, headers={"location": target})
    text = await fetch(fetching(workers), f"{web.url}/0")
    assert f"URL: {web.url}/tea\n" in text
    web.routes["/loop"] = answer("", status=302, headers={"location": "/loop"})
    web.asked.clear()
    assert "more than 5 redirects" in await failure(fetching(workers), f"{web.url}/loop")
    assert len(web.asked) == 6


HOSTS = (
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0x7f.1",
    "0",
    "0.0.0.0",
    "localhost",
    "LOCALHOST",
    "127.0.0.1.",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[fe80::1]",
    "[fd00::1]",
    "[fec0::1]",
    "[::1%25lo]",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "192.0.0.192",
    "168.63.129.16",
    "[fd00:ec2::254]",
    "255.255.255.255",
    "224.0.0.1",
    "198.18.0.1",
    "127。0。0。1",
    "①②⑦.0.0.1",
)


async def test_no_form_of_a_private_address_is_reached(web: WebServer, workers: ProcessWorkers) -> None:
    port = web.url.rpartition(":")[2]
    tool = fetching(workers, web_private=False)
    for host in HOSTS:
        told = await failure(tool, f"http://{host}:{port}/")
        assert "is not a public address" in told or "not the address of a web page" in told, (host, told)
    assert not web.asked


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://127.0.0.1:70/_",
        "data:text/html,hi",
        "javascript:alert(1)",
        "//example.com/",
        "example.com",
        "http://",
        "http:///x",
        "http://user:pass@example.com/",
        "http://example.com@127.0.0.1/",
        "http://example.com:80@127.0.0.1/",
        "http://127.0.0.1\\@example.com/",
        "http://exa mple.com/",
        "http://example.com:99999/",
        "http://example.com:0/",
        "http://example.com:22/",
        "http://example.com:6379x/",
        "http://[::1/",
        "http://example.com/\r\nHost: x",
        "http://example.com/" + "x" * 5000,
        "",
    ],
)
async def test_what_is_not_the_address_of_a_page_is_refused(workers: ProcessWorkers, url: str) -> None:
    told = await failure(fetching(workers), url)
    assert "address of a web page" in told or "Port" in told or "characters" in told


async def test_no_redirect_leads_to_a_private_address(
    web: WebServer, workers: ProcessWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first address counts as public here; what it redirects to does not."""
    port = web.url.rpartition(":")[2]
    monkeypatch.setattr("kelpie.world.http.aiohttp_transport._is_outside", lambda address: address == "127.0.0.1")
    tool = fetching(workers, web_private=False)
    web.routes["/secret"] = answer("the secret", "text/plain")
    assert "the secret" in await fetch(tool, f"{web.url}/secret")
    for target in (f"http://127.0.0.2:{port}/secret", f"http://[::1]:{port}/secret", f"http://0:{port}/secret"):
        web.routes["/x"] = answer("", status=302, headers={"location": target})
        assert "is not a public address" in await failure(tool, f"{web.url}/x")
    for target in ("file:///etc/passwd", "http://a@127.0.0.1/", "ftp://127.0.0.1/"):
        web.routes["/x"] = answer("", status=307, headers={"location": target})
        assert "not the address of a web page" in await failure(tool, f"{web.url}/x")


async def test_a_name_that_resolves_to_a_private_address_is_refused(
    web: WebServer, workers: ProcessWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of several addresses, and at every look-up, so a name that changes its address gains nothing."""
    found = [["127.0.0.1"], ["93.184.216.34", "169.254.169.254"], ["::ffff:10.0.0.1"]]

    async def resolve(self: object, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        facts = {"hostname": host, "port": port, "family": family, "proto": 0, "flags": 0}
        return [{**facts, "host": address} for address in found[0]]

    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", resolve)
    port, tool = web.url.rpartition(":")[2], fetching(workers, web_private=False)
    while found:
        assert "is not a public address" in await failure(tool, f"http://tea.example:{port}/")
        found.pop(0)
    assert not web.asked


async def test_the_operators_list_of_hosts_holds_for_redirects_too(web: WebServer, workers: ProcessWorkers) -> None:
    port = web.url.rpartition(":")[2]
    tool = fetching(workers, tool_egress=(f"127.0.0.1:{port}", "*.example.org"))
    web.routes["/tea"] = answer(ARTICLE)
    assert "## History" in await fetch(tool, f"{web.url}/tea")
    assert "limits.egress" in await failure(tool, f"http://localhost:{port}/tea")
    web.routes["/x"] = answer("", status=302, headers={"location": f"http://localhost:{port}/tea"})
    assert "limits.egress" in await failure(tool, f"{web.url}/x")


async def test_code_of_a_tool_reaches_only_the_hosts_of_its_own_list(web: WebServer, workers: ProcessWorkers) -> None:
    port, tool = web.url.rpartition(":")[2], fetching(workers)
    web.routes["/tea"] = answer(ARTICLE)
    assert "does not list this host" in await failure(tool, f"{web.url}/tea", code_egress=())
    assert "## History" in await fetch(tool, f"{web.url}/tea", code_egress=(f"127.0.0.1:{port}",))


async def test_pages_that_are_made_to_hurt_end_in_a_clear_error(
    web: WebServer, workers: ProcessWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gzipped = {"content-encoding": "gzip"}
    twice = gzip.compress(gzip.compress(b"x" * (20 * MEGABYTE)))
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 20}">' for n in range(1, 9))
    dtd = f'<?xml version="1.0"?><!DOCTYPE html [<!ENTITY e0 "ha">{entities}]>'
    laughs = f"{dtd}<html><body><p>&e8;{WORDS}</p></body></html>"
    monkeypatch.setattr(page_reader, "PROGRAM", replace(page_reader.PROGRAM, cpu_s=1))

    async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<p>")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async def head_forever(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-a: " + b"y" * 60000 + b"\r\n")
            await writer.drain()

    web.routes |= {
        "/large": answer(b"x" * (10 * MEGABYTE)),
        "/bomb": answer(gzip.compress(b"x" * (60 * MEGABYTE), 1), headers=gzipped),
        "/bomb-in-bomb": answer(twice, "text/plain", headers=gzipped),
        "/endless": endless,
        "/head": head_forever,
        "/laughs": answer(laughs, "application/xhtml+xml"),
        "/refresh": answer("<html><head><meta http-equiv=Refresh content='0; url=http://127.0.0.1/'></head></html>"),
        "/attributes": answer("<p " + " ".join(f"a{n}=1" for n in range(200_000)) + f">{WORDS}"),
        "/nested": answer("<div>" * 200_000 + WORDS),
    }
    tool = fetching(workers)
    told = {path: await failure(tool, web.url + path) for path in ("/large", "/bomb", "/endless", "/refresh")}
    assert "larger than 8 MB" in told["/large"] and "larger than 8 MB" in told["/endless"]
    assert "when it is decompressed" in told["/bomb"]
    assert "fetch http://127.0.0.1/ instead" in told["/refresh"]
    assert await failure(tool, f"{web.url}/head")
    assert "ha" * 100 not in await fetch(tool, f"{web.url}/laughs")
    assert "no HTML that can be read" in await failure(tool, f"{web.url}/nested")
    assert "processor time" in await failure(tool, f"{web.url}/attributes")
    assert len(await fetch(tool, f"{web.url}/bomb-in-bomb")) < 600_000  # one layer only
    web.routes["/x"] = answer(ARTICLE)
    assert "## History" in await fetch(tool, f"{web.url}/x")  # and the next page is read


class FailingWorkers(ProcessWorkers):
    """Workers whose every process ends for one reason."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def ask(self, program: WorkerProgram, request: bytes | Upload, owner: str) -> bytes:
        raise self._error


async def test_a_page_that_costs_too_much_is_given_up(web: WebServer) -> None:
    web.routes["/x"] = answer(ARTICLE)
    for error, told in (
        (WorkerFailed(WorkerFault.time), "takes more than 10 s of processor time"),
        (WorkerFailed(WorkerFault.memory), "needs more than 1024 MB of memory"),
        (WorkerFailed(WorkerFault.crash), "ended the process that reads pages"),
        (Overloaded("reader_queue_full", "Too many requests wait.", 5.0), "was not read: Too many requests wait."),
    ):
        assert told in await failure(fetching(FailingWorkers(error)), f"{web.url}/x")


async def test_slow_servers_are_left_in_time(web: WebServer, workers: ProcessWorkers) -> None:
    async def drip(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    web.routes |= {"/drip": drip, "/silent": silent}
    for path in ("/drip", "/silent"):
        assert "within 0.3 s" in await failure(fetching(workers, web_fetch_s=0.3), web.url + path)
    assert "within 0.2 s" in await failure(fetching(workers), f"{web.url}/silent", quota=Quota(wall_s=0.2))
