"""What installers may reach: a package that names an address inside of our network leads nowhere. With real ones."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kelpie.core.errors import ToolError
from kelpie.core.tools.package_requirements import Index, needed
from kelpie.world.egress.proxy import EgressProxy
from kelpie.world.egress.upstream import UpstreamProxies, UpstreamProxy, direct_hosts, upstream_proxy
from kelpie.world.packages.store import LocalPackages
from tests.package_index import Web, archive, wheel


@pytest.mark.needs("pip")
async def test_pip_fetches_from_its_index_and_not_from_an_address_that_a_wheel_names(
    index: Web, inside: Web, shelf: LocalPackages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.address}/simple")
    inside.pages["/inner-1-py3-none-any.whl"] = wheel("inner")
    index.add_wheel("plain")
    index.add_wheel("sly", f"Requires-Dist: inner @ {inside.address}/inner-1-py3-none-any.whl")
    place = await shelf.install(needed(Index.pip, [{"name": "plain"}]), ())
    assert (Path(place) / "plain.py").is_file()
    with pytest.raises(ToolError, match=r"127\.0\.0\.1 may not be reached: its address is in a private network"):
        await shelf.install(needed(Index.pip, [{"name": "sly"}]), ())
    assert inside.asked == []


@pytest.mark.needs("node")
async def test_npm_fetches_from_its_registry_and_not_from_an_address_that_a_package_names(
    index: Web, inside: Web, shelf: LocalPackages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{index.address}/")
    inside.pages["/inner.tgz"] = archive({"package/package.json": '{"name": "inner", "version": "1.0.0"}'})
    index.add_npm("sly", dependencies={"inner": f"{inside.address}/inner.tgz"})
    with pytest.raises(ToolError, match=r"127\.0\.0\.1 may not be reached: its address is in a private network"):
        await shelf.install(needed(Index.npm, [{"name": "sly"}]), ())
    assert index.asked == ["/sly"] and inside.asked == []


@asynccontextmanager
async def _operators_proxy(answer: bytes) -> AsyncIterator[tuple[UpstreamProxy, list[bytes]]]:
    """A proxy that answers a tunnel's head with this, and then everything with itself."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.write(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = upstream_proxy(f"http://us%40er:word@127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert proxy is not None
    try:
        yield proxy, heads
    finally:
        server.close()


async def _asked(upstream: UpstreamProxies, *sent: bytes) -> bytes:
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = await EgressProxy(None, upstream=upstream).serve(listener)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        async with asyncio.timeout(60):
            received = b""
            for each in sent:
                writer.write(each)
                if each is not sent[-1]:
                    received += await reader.readuntil(b"\r\n\r\n")
            return received + await reader.read()
    finally:
        writer.close()
        await proxy.close()


async def test_a_tunnel_goes_through_the_operators_proxy_with_its_credentials() -> None:
    async with _operators_proxy(b"HTTP/1.1 200 OK\r\n\r\n") as (proxy, heads):
        told = await _asked(UpstreamProxies(https=proxy), b"CONNECT pypi.corp:443 HTTP/1.1\r\n\r\n", b"\x16hello")
    assert told == b"HTTP/1.1 200 Connection established\r\n\r\n\x16hello"
    authorization = b"Proxy-Authorization: Basic dXNAZXI6d29yZA==\r\n"
    assert heads == [b"CONNECT pypi.corp:443 HTTP/1.1\r\nHost: pypi.corp:443\r\n" + authorization + b"\r\n"]


async def test_a_refusal_of_the_operators_proxy_is_told_without_its_address() -> None:
    async with _operators_proxy(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as (proxy, _):
        told = await _asked(UpstreamProxies(https=proxy), b"CONNECT pypi.corp:443 HTTP/1.1\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 502 ") and b"refused the connection to pypi.corp (407)" in told
    told = await _asked(UpstreamProxies(http=UpstreamProxy("127.0.0.1", 1)), b"GET http://a.corp/ HTTP/1.1\r\n\r\n")
    assert told.endswith(b"The proxy that this server is set to use cannot be reached.\n")


@pytest.mark.parametrize(
    ("no_proxy", "hosts"),
    [
        ("", {"pypi.corp": False}),
        ("*", {"pypi.corp": True}),
        ("corp, other", {"pypi.corp": True, "corp": True, "xcorp": False, "other": True}),
        (".corp", {"pypi.corp": True, "corp.test": False}),
        ("10.0.0.0/8 pypi.corp:8080", {"10.1.2.3": True, "11.0.0.1": False, "pypi.corp": False}),
    ],
)
async def test_hosts_that_the_operator_excepts_are_not_asked_of_the_proxy(
    no_proxy: str, hosts: Mapping[str, bool]
) -> None:
    """They are reached directly, which is checked: so a private address is refused here."""
    async with _operators_proxy(b"HTTP/1.1 200 OK\r\n\r\n") as (proxy, heads):
        upstream = UpstreamProxies(https=proxy, direct=direct_hosts([no_proxy, None]))
        listener = socket.create_server(("127.0.0.1", 0))

        async def private(host: str, port: int) -> list[str]:
            return ["10.0.0.1"]

        served = await EgressProxy(None, upstream=upstream, resolve=private).serve(listener)
        try:
            for host, direct in hosts.items():
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                writer.write(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
                expected = b"HTTP/1.1 403 " if direct and host != "11.0.0.1" else b"HTTP/1.1 200 "
                assert (await reader.readline()).startswith(expected), host
                writer.close()
        finally:
            await served.close()
    assert len(heads) == sum(not direct for direct in hosts.values())


@pytest.mark.parametrize("address", ["socks5://127.0.0.1:1080", "http://", "http://host:port"])
def test_a_proxy_that_cannot_be_used_is_refused(address: str) -> None:
    with pytest.raises(ToolError, match=r"must have an http:// or https:// URL"):
        upstream_proxy(address)
