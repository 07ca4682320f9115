"""Addresses of this machine's own interfaces: code that may reach the internet only does not get back in by them."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from kelpie.world.egress import proxy
from kelpie.world.http import aiohttp_transport
from kelpie.world.http.aiohttp_transport import NetworkTransport
from kelpie.world.own_addresses import is_own

DEADLINE_S = 60
OWN = "2d00::1"  # counts as public and is given to nobody, so that a failing test reaches nobody

# Run in a network of its own, whose loopback interface has public addresses as a hosted machine has.
SETUP = """
ip link set lo up
ip addr add 8.1.2.3/32 dev lo
ip addr add 9.1.2.3/24 dev lo
ip addr add 9.1.2.4/24 dev lo
ip -6 addr add 2a00:1450::1/128 dev lo nodad
"""
INSIDE = ["8.1.2.3", "9.1.2.3", "9.1.2.4", "2a00:1450::1", "::ffff:8.1.2.3", "64:ff9b::801:203"]


async def reach(address: str, port: int) -> dict[str, str]:
    """What the transport of callbacks and images, and the proxy of tools, answer for this address."""
    host = f"[{address}]" if ":" in address else address
    listener = socket.create_server(("127.0.0.1", 0))
    carrier = await proxy.EgressProxy([f"{host}:{port}"]).serve(listener)
    allowed = await proxy.EgressProxy([f"{host}:{port}"], private=True).serve(
        other := socket.create_server(("127.0.0.1", 0))
    )
    said = {}
    for name, way in (("proxy", listener.getsockname()), ("allowed", other.getsockname())):
        reader, writer = await asyncio.open_connection(*way)
        writer.write(f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        said[name] = (await reader.read()).decode()
        writer.close()
    async with httpx.AsyncClient(transport=NetworkTransport(2, public=True)) as client:
        try:
            said["transport"] = (await client.get(f"http://{host}:{port}/")).text
        except httpx.ConnectError as error:
            said["transport"] = str(error)
    await carrier.close()
    await allowed.close()
    return said


async def _inside() -> None:
    """Serves on every address of this network, and prints what each way to it says."""

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\ninternal")
        writer.close()

    server = await asyncio.start_server(hello, ["0.0.0.0", "::"], 6379)
    async with server:
        print(json.dumps({address: await reach(address, 6379) for address in INSIDE}))


@pytest.mark.needs("namespaces")
def test_a_public_address_of_this_machine_is_not_the_internet() -> None:
    command = f"set -e\n{SETUP}\nexec {sys.executable} -m tests.world.test_own_addresses"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", command],
        capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for address, said in json.loads(done.stdout).items():
        assert "403 Forbidden" in said["proxy"] and "belongs to this machine" in said["proxy"], (address, said)
        assert "is not a public address" in said["transport"], (address, said)
        if not address.startswith("64:"):  # no translator is there
            assert said["allowed"].endswith("internal"), "an operator may allow it"


def test_the_addresses_of_this_machine_are_known() -> None:
    assert is_own("127.0.0.1") and is_own("::ffff:127.0.0.1")
    for address in ("192.0.2.7", "8.8.8.8", "::ffff:8.8.8.8", "2001:db8::7", "2606:2800:220:1::1"):
        assert not is_own(address)


async def test_an_own_address_is_refused_by_name_and_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (proxy, aiohttp_transport):
        monkeypatch.setattr(module, "is_own", lambda address: address == OWN)

    async def resolve(host: str, port: int) -> list[str]:
        return [OWN]

    async def ask(host: str) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        carrier = await proxy.EgressProxy(["*"], resolve=resolve).serve(listener)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        said = (await reader.read()).decode()
        writer.close()
        await carrier.close()
        return said

    async with asyncio.timeout(DEADLINE_S):
        assert "403 Forbidden" in await ask("own.example") and "403 Forbidden" in await ask(f"[{OWN}]")
        async with httpx.AsyncClient(transport=NetworkTransport(2, public=True)) as client:
            with pytest.raises(httpx.ConnectError, match="is not a public address"):
                await client.get(f"http://[{OWN}]/")


if __name__ == "__main__":
    asyncio.run(_inside())
