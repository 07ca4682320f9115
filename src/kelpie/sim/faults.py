"""All faults that can be injected, and the one gate that injects them.

An adapter asks `faults.fires(kind, place)` at the place where it could fail; nothing else decides. Every firing is
recorded with its place, so a scenario that names a fault fails when that fault never fired there, and a test can
disconnect a kind and see that it is missed. Swarm: a kind that a scenario does not name is off in half of the runs.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from kelpie.sim.loop.loop import SimLoop

T = TypeVar("T")


class Fault(StrEnum):
    storage_write_fail = "StorageWriteFail"
    storage_read_fail = "StorageReadFail"
    storage_busy = "StorageBusy"
    storage_latency = "StorageLatency"
    disk_full = "DiskFull"
    crash_before_write = "CrashBeforeWrite"
    crash_after_write = "CrashAfterWrite"
    crash_during_transaction = "CrashDuringTransaction"
    network_delay = "NetworkDelay"
    network_packet_loss = "NetworkPacketLoss"
    network_partition = "NetworkPartition"
    network_message_reorder = "NetworkMessageReorder"
    clock_skew = "ClockSkew"
    clock_jump = "ClockJump"
    cpu_starvation = "CPUStarvation"
    llm_timeout = "LlmTimeout"
    llm_rate_limit = "LlmRateLimit"
    llm_malformed = "LlmMalformed"
    embedding_timeout = "EmbeddingTimeout"
    embedding_fail = "EmbeddingFail"
    vector_search_fail = "VectorSearchFail"
    storage_corruption = "StorageCorruption"
    process_crash = "ProcessCrash"
    process_timeout = "ProcessTimeout"
    process_resource_exhaustion = "ProcessResourceExhaustion"
    out_of_memory = "OutOfMemory"
    slow_client = "SlowClient"
    vanishing_client = "VanishingClient"
    mcp_server_crash = "McpServerCrash"
    mcp_server_slow_start = "McpServerSlowStart"
    mcp_tool_timeout = "McpToolTimeout"
    mcp_tool_fail = "McpToolFail"


_PACKETS = ("network.client", "network.provider")

# Places where each kind can fire. A place that is not listed here cannot be asked about or named by a scenario.
PLACES: dict[Fault, tuple[str, ...]] = {
    Fault.storage_write_fail: ("database.begin", "database.statement", "database.commit", "database.acknowledge"),
    Fault.storage_read_fail: ("database.read",),
    Fault.storage_busy: ("database.begin", "database.commit"),
    Fault.storage_latency: ("database.write", "database.read"),
    Fault.disk_full: ("database.statement", "database.commit", "uploads.keep"),
    Fault.crash_before_write: ("database.begin",),
    Fault.crash_during_transaction: ("database.statement", "database.commit"),
    Fault.crash_after_write: ("database.acknowledge",),
    Fault.network_delay: _PACKETS,
    Fault.network_packet_loss: _PACKETS,
    Fault.network_partition: _PACKETS,
    Fault.network_message_reorder: _PACKETS,
    Fault.clock_skew: ("clock.boot",),
    Fault.clock_jump: ("clock.now",),
    Fault.cpu_starvation: ("cpu",),
    Fault.llm_timeout: ("llm.reply", "llm.stream"),
    Fault.llm_rate_limit: ("llm.with_retry_after", "llm.without_retry_after"),
    Fault.llm_malformed: ("llm.body", "llm.choices", "llm.arguments", "llm.cut", "llm.content_type", "llm.status"),
    Fault.embedding_timeout: (),
    Fault.embedding_fail: (),
    Fault.vector_search_fail: (),
    Fault.storage_corruption: (),
    Fault.process_crash: (),
    Fault.process_timeout: (),
    Fault.process_resource_exhaustion: (),
    Fault.out_of_memory: (),
    Fault.slow_client: ("client.read",),
    Fault.vanishing_client: ("client.request", "client.stream"),
    Fault.mcp_server_crash: (),
    Fault.mcp_server_slow_start: (),
    Fault.mcp_tool_timeout: (),
    Fault.mcp_tool_fail: (),
}

# Places that only the real application has, in its journal and in the world around it. A swarm leaves them alone unless
# it is told to fire everywhere.
_KINDS = ("open", "step", "reply", "ask", "answers", "result", "recover", "compact", "close")
_JOURNAL = tuple(f"journal.{kind}" for kind in _KINDS)
_TOLD = tuple(f"{place}.told" for place in _JOURNAL)  # after the commit, before anybody knows of it
_MCP = ("network.mcp",)  # packets of MCP servers and of their authorization servers
HOUSE_PLACES: dict[Fault, tuple[str, ...]] = {
    Fault.storage_write_fail: (
        *(*_JOURNAL, *_TOLD, "stream.previews", "stream.previews.told"),
        *("callbacks.record", "callbacks.record.told"),  # of what became of a callback that was sent
    ),
    Fault.storage_read_fail: ("journal.lookup",),  # of a commit whose outcome is unknown
    Fault.storage_latency: (  # between one read or write and its answer, which is old by then
        "database.acknowledge",
        "write.cancel",
        "write.journal",
        "read.permissions",
        "read.usage",
        "read.spending",
        "read.agent",
        "read.conversation",
        "read.changes",
        "read.expired",
    ),
    Fault.disk_full: (*_JOURNAL, "journal.group"),
    Fault.crash_before_write: (*_JOURNAL, "keys.write", "outside.effect", "packages.install"),
    Fault.crash_after_write: (*_JOURNAL, "cells.told", "keys.write", "outside.effect", "packages.install"),
    Fault.llm_malformed: ("llm.overflow", "llm.summary_fails", "llm.summary_empty", "llm.summary_long"),
    Fault.process_crash: (
        "cells.waiting",
        "cells.before",
        "cells.after",
        "cells.calling",
        "packages.install",
        "workers.answer",
        "embedding.process",
    ),
    Fault.process_timeout: ("cells.run", "cells.calling", "workers.answer"),
    Fault.process_resource_exhaustion: ("cells.start",),
    Fault.out_of_memory: ("cells.run", "cells.calling", "workers.answer"),
    Fault.network_delay: _MCP,
    Fault.network_packet_loss: _MCP,
    Fault.network_partition: _MCP,
    Fault.network_message_reorder: _MCP,
    Fault.mcp_server_crash: ("mcp.connect", "mcp.call", "mcp.answer"),  # the last: after the effect of the call
    Fault.mcp_server_slow_start: ("mcp.connect",),
    Fault.mcp_tool_timeout: ("mcp.call", "mcp.stream"),  # no answer; a stream that begins and stays silent
    Fault.mcp_tool_fail: ("mcp.call", "mcp.status", "mcp.garbage"),
    Fault.embedding_timeout: ("embedding.local", "embedding.provider"),
    Fault.embedding_fail: ("embedding.local", "embedding.provider", "embedding.missing"),
    Fault.vector_search_fail: ("search.passages", "search.messages"),
    Fault.storage_corruption: (
        "disk.vector",
        "disk.sketch",
        "disk.words",
        "disk.postings",
        "disk.segment",
        "disk.passage",
        "disk.message",
        "disk.call",
        "disk.result",
        "disk.block",
        "disk.version",
    ),
}

# Size of the fault: seconds, drawn evenly.
SIZES: dict[Fault, tuple[float, float]] = {
    Fault.storage_latency: (0.01, 3.0),
    Fault.network_delay: (0.05, 5.0),
    Fault.network_partition: (0.5, 20.0),
    Fault.network_message_reorder: (0.05, 1.0),
    Fault.clock_skew: (-300.0, 300.0),
    Fault.clock_jump: (-86400.0, 86400.0),
    Fault.cpu_starvation: (0.05, 2.0),
    Fault.slow_client: (0.1, 5.0),
    Fault.mcp_server_slow_start: (0.5, 20.0),
}

CRASHES = (Fault.crash_before_write, Fault.crash_during_transaction, Fault.crash_after_write)
SWARM_RATES = (0.005, 0.02, 0.1)
SWARM_CRASHES_MAX = 3
VISITED_OFTEN = ("database.statement", "clock.now")  # the swarm is gentler there, or nothing would ever get done
STARVATION_PICKS_MAX = 200


@dataclass(frozen=True, slots=True)
class Aim:
    """A fault at a place: at its nth visit exactly, or at each visit with a chance, so many times at most."""

    fault: Fault
    place: str
    nth: int | None = None
    rate: float = 0.1
    times_max: int = 1000

    def __post_init__(self) -> None:
        if self.place not in (places := places_of(self.fault)):
            raise ValueError(f"{self.fault} cannot fire at '{self.place}'; its places are {places}")


@dataclass(frozen=True, slots=True)
class Firing:
    at_s: float
    fault: Fault
    place: str
    detail: str


def places_of(kind: Fault, *, everywhere: bool = True) -> tuple[str, ...]:
    """The places of a kind: those of every application, and everywhere those of the real one."""
    return (*PLACES[kind], *(HOUSE_PLACES.get(kind, ()) if everywhere else ()))


def swarm(rng: random.Random, kinds: Iterable[Fault], *, everywhere: bool = False) -> list[Aim]:
    """The aims of a run for kinds that may fire anywhere: about half of them stay off."""
    aims: list[Aim] = []
    for kind in kinds:
        rate = rng.choice(SWARM_RATES)
        if rng.random() < 0.5:
            continue
        times_max = SWARM_CRASHES_MAX if kind in CRASHES else 1000
        for place in PLACES[kind]:
            aims.append(Aim(kind, place, rate=rate / 10 if place in VISITED_OFTEN else rate, times_max=times_max))
        if everywhere:  # where a crash has many places, one in each is enough
            times_max = 1 if kind in CRASHES else 1000
            aims += [Aim(kind, place, rate=rate, times_max=times_max) for place in HOUSE_PLACES.get(kind, ())]
    return aims


class Faults:
    """The fault gate of one run."""

    def __init__(self, loop: SimLoop, aims: Iterable[Aim] = (), *, disconnected: Iterable[Fault] = ()) -> None:
        self.firings: list[Firing] = []
        self._loop = loop
        self._aims = {(aim.fault, aim.place): aim for aim in aims}
        self._rngs: dict[Fault, random.Random] = {}
        self._visits: Counter[tuple[Fault, str]] = Counter()
        self._fired: Counter[tuple[Fault, str]] = Counter()
        self._disconnected = frozenset(disconnected)
        self._quiet = False
        self._at_quiet: list[Callable[[], None]] = []
        if (Fault.cpu_starvation, "cpu") in self._aims:
            loop.stalls(self._starve)

    def fires(self, fault: Fault, place: str, detail: str = "") -> bool:
        """True if this fault happens here and now; if so, it is recorded."""
        aim = self._aims.get((fault, place))
        if aim is None or self._quiet:
            return False
        self._visits[fault, place] += 1
        if not self._hits(aim) or fault in self._disconnected:
            return False
        self._fired[fault, place] += 1
        self.firings.append(Firing(self._loop.time(), fault, place, detail))
        self._loop.note(f"fault {fault} at {place} {detail}")
        return True

    def size(self, fault: Fault) -> float:
        """The size of this fault this time, in seconds."""
        return self._rng(fault).uniform(*SIZES[fault])

    def choose(self, fault: Fault, options: Sequence[T]) -> T:
        """One of several forms of this fault."""
        return self._rng(fault).choice(options)

    def fired(self, fault: Fault, place: str | None = None) -> int:
        """The number of times the fault fired, at this place or anywhere."""
        if place is not None:
            return self._fired[fault, place]
        return sum(count for (kind, _), count in self._fired.items() if kind is fault)

    def quiet(self) -> None:
        """Begins the quiet period: nothing fires any more, and partitions heal."""
        self._quiet = True
        self._loop.stalls(None)
        self._loop.note("quiet")
        for heal in self._at_quiet:
            heal()

    def at_quiet(self, heal: Callable[[], None]) -> None:
        """Registers a function to call when the quiet period begins."""
        self._at_quiet.append(heal)

    def _rng(self, fault: Fault) -> random.Random:
        """Each kind draws from its own stream: turning one off leaves the others as they were."""
        if fault not in self._rngs:
            self._rngs[fault] = self._loop.rng(f"fault/{fault}")
        return self._rngs[fault]

    def _hits(self, aim: Aim) -> bool:
        key = aim.fault, aim.place
        if self._fired[key] >= aim.times_max:
            return False
        if aim.nth is not None:
            return self._visits[key] == aim.nth
        return self._rng(aim.fault).random() < aim.rate

    def _starve(self) -> tuple[float, int]:
        lost_s = self.size(Fault.cpu_starvation) if self.fires(Fault.cpu_starvation, "cpu") else 0.0
        return lost_s, self._rng(Fault.cpu_starvation).randrange(1, STARVATION_PICKS_MAX)
