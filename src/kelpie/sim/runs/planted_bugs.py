"""Bugs planted on purpose, beside their correct versions: the simulation must find the one and pass the other.

The application is a counter and a log behind two routes, small enough to be obviously right or obviously wrong.
"""

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Column, Integer, MetaData, Table, Text, bindparam, insert, select, update

from kelpie.core.errors import KelpieError
from kelpie.core.settings.settings import Settings
from kelpie.sim.checks.linearizability import Log, check
from kelpie.sim.faults import Aim, Fault
from kelpie.sim.loop.errors import Broken
from kelpie.sim.network.http_client import SimClient
from kelpie.sim.network.http_server import App, Message
from kelpie.sim.network.network import ConnectionLost
from kelpie.sim.runs.machine import Machine
from kelpie.sim.runs.scenario import Scenario
from kelpie.world.database import Tx
from kelpie.world.world import World

RACE_SEEDS = 10  # within so many seeds the race is found
LOST_WRITE_SEEDS = 20  # and the lost write
PAUSE_S = 0.1

_metadata = MetaData()
_counter = Table("counter", _metadata, Column("value", Integer, nullable=False))
_log = Table("log", _metadata, Column("seq", Integer, primary_key=True), Column("entry", Text, nullable=False))

_READ_COUNT = select(_counter.c.value)
_SET_COUNT = update(_counter).values(value=bindparam("count"))
_ADD_ONE = update(_counter).values(value=_counter.c.value + 1)
_APPEND = insert(_log)
_READ_LOG = select(_log.c.entry).order_by(_log.c.seq)


def _schema(tx: Tx) -> None:
    _metadata.create_all(tx)
    tx.execute(insert(_counter).values(value=0))


@dataclass(frozen=True, slots=True)
class _Running:
    asgi: App

    async def stop(self) -> None:
        return


class _Shop:
    """The application; each flag turns one right thing wrong."""

    def __init__(self, world: World, *, races: bool, forgets: bool) -> None:
        self._database = world.database
        self._races = races
        self._forgets = forgets
        self._remembered: list[str] = []
        self._background: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        asked = await receive()
        if asked["type"] == "http.disconnect":
            return
        try:
            status, answer = 200, await self._route(scope["method"], scope["path"], asked["body"])
        except KelpieError as error:
            status, answer = 503, {"detail": str(error)}
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def load(self) -> None:
        self._remembered = await self._database.read(_entries)

    async def _route(self, method: str, path: str, body: bytes) -> Any:
        if path == "/count":
            return await self._count() if method == "POST" else await self._database.read(_value)
        if method == "POST":
            return await self._append(json.loads(body))
        return list(self._remembered) if self._forgets else await self._database.read(_entries)

    async def _count(self) -> int:
        if self._races:  # check, then act
            value = await self._database.read(_value) + 1
            await self._database.transact(partial(_set, value))
            return value
        return await self._database.transact(_increment)

    async def _append(self, entry: str) -> None:
        if self._forgets:  # acknowledged before it is durable
            self._remembered.append(entry)
            self._background.append(asyncio.create_task(self._write(entry)))
        else:
            await self._write(entry)

    async def _write(self, entry: str) -> None:
        await self._database.transact(partial(_add, entry))


def _value(tx: Tx) -> int:
    return tx.execute(_READ_COUNT).scalar_one()


def _set(value: int, tx: Tx) -> None:
    tx.execute(_SET_COUNT, {"count": value})


def _increment(tx: Tx) -> int:
    tx.execute(_ADD_ONE)
    return _value(tx)


def _entries(tx: Tx) -> list[str]:
    return list(tx.execute(_READ_LOG).scalars())


def _add(entry: str, tx: Tx) -> None:
    tx.execute(_APPEND, {"entry": entry})


async def _count_together(machine: Machine) -> None:
    """Three clients count to nine, taking their time."""
    acknowledged: list[int] = []

    async def count(client: SimClient) -> None:
        for _ in range(3):
            await asyncio.sleep(machine.rng.uniform(0.0, PAUSE_S))
            acknowledged.append((await client.request("POST", "/count")).json())

    await asyncio.gather(*(count(machine.client(f"client-{number}")) for number in range(3)))
    stored = (await machine.client().request("GET", "/count")).json()
    if stored != len(acknowledged) or len(set(acknowledged)) != len(acknowledged):
        raise Broken("no count is lost", f"{len(acknowledged)} were acknowledged, the counter says {stored}")


async def _write_and_read(machine: Machine) -> None:
    """Three clients append and read; their results go into the history."""

    async def write(client: SimClient, number: int) -> None:
        for entry in (f"{number}-{turn}" for turn in range(3)):
            await asyncio.sleep(machine.rng.uniform(0.0, PAUSE_S))
            await _operate(machine, client, "append", entry)
            await _operate(machine, client, "read", None)

    await asyncio.gather(*(write(machine.client(f"client-{number}"), number) for number in range(3)))


async def _operate(machine: Machine, client: SimClient, kind: str, value: str | None) -> None:
    await machine.up()
    called_s = machine.loop.time()
    try:
        response = await client.request("POST" if kind == "append" else "GET", "/log", value)
    except ConnectionLost:
        machine.history.operation("log", kind, value, called_s)
        return
    if response.status == 200:
        machine.history.operation("log", kind, value, called_s, result=response.json())
    else:
        machine.history.operation("log", kind, value, called_s)


async def _read_again(machine: Machine) -> None:
    await _operate(machine, machine.client(), "read", None)
    check(machine.history.operations, Log())


def counting(*, races: bool) -> Scenario:
    """Counting together, by read-then-write when it races, by one transaction when not."""

    async def boot(world: World, _settings: Settings) -> _Running:
        return _Running(_Shop(world, races=races, forgets=False))

    return Scenario(f"planted-race-{races}", _count_together, boot, _schema, quiet_s=1.0)


def logging(*, forgets: bool) -> Scenario:
    """Appending to a log while the power fails, acknowledged too early when it forgets."""

    async def boot(world: World, _settings: Settings) -> _Running:
        shop = _Shop(world, races=False, forgets=forgets)
        await shop.load()
        return _Running(shop)

    faults = (
        Aim(Fault.crash_before_write, "database.begin", rate=0.1, times_max=2),
        Aim(Fault.crash_after_write, "database.acknowledge", rate=0.05, times_max=2),
        Aim(Fault.crash_during_transaction, "database.commit", rate=0.05, times_max=2),
    )
    return Scenario(
        f"planted-lost-write-{forgets}",
        _write_and_read,
        boot,
        _schema,
        faults=faults,
        swarm=(Fault.network_delay, Fault.network_packet_loss, Fault.storage_latency, Fault.slow_client),
        settled=_read_again,
        quiet_s=30.0,
    )
