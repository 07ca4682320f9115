"""One bubblewrap cell, from its start to the end of its last process.

It talks to the launcher inside over one socket and reads two pipes; every byte from there is bounded. The end of the
first process in the cell's process namespace is the end of all of them: the kernel guarantees that.
"""

import asyncio
import errno
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from kelpie.core.errors import SandboxUnavailable
from kelpie.core.tools.confinement import Confinement
from kelpie.world.cells import handshake, rlimits
from kelpie.world.cells import users as cell_users
from kelpie.world.cells.channel import SocketChannel
from kelpie.world.cells.pipes import CHUNK, Frame, Pipe, framed
from kelpie.world.cells.port import CellPlan, CellSockets, Order, OrderOutput
from kelpie.world.isolation.bubblewrap_errors import explain
from kelpie.world.isolation.control_group import Group
from kelpie.world.processes import killing

NOT_ADMITTED = "code cannot be isolated on this server: the users of a sandbox cannot be mapped ({})"
NOT_ITSELF = "code cannot be isolated on this server: a sandbox did not switch to its own user"
REPORT_S = 5.0
TEARDOWN_EVERY_S, TEARDOWN_EVERY_S_MAX = 0.002, 1.0


class CellBroken(SandboxUnavailable):
    """A cell ended before it was ready, or did not have the expected isolation."""


@dataclass(frozen=True, slots=True)
class CellHandles:
    """The server's handles of a cell: its process, its descriptors, its control group."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    stdout: int
    stderr: int
    group: Group | None
    env: Mapping[str, str]  # before that of the order
    information: int | None = None  # bubblewrap reports the first process there; None: there is no isolation
    admission: int | None = None  # it waits there until its users are set
    user: int | None = None  # the user of its program on the host; None: the server's own
    scratch: str | None = None  # a directory of the host that goes with it

    def release(self) -> None:
        """Ends the process and frees every handle, when no cell could be made."""
        self.process.kill()
        self.process.wait()
        os.close(self.stdout)
        os.close(self.stderr)
        self.close()

    def close(self) -> None:
        """Frees every handle except the pipes of the cell."""
        self.control.close()
        for each in (self.information, self.admission):
            if each is not None:
                os.close(each)
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


class BubblewrapCell:
    def __init__(self, hold: CellHandles, plan: CellPlan) -> None:
        self._outer: int | None = os.pidfd_open(hold.process.pid)  # first: nothing below can fail
        self._hold = hold
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._gone = asyncio.Event()
        self._given = False
        self._killed: asyncio.Task[None] | None = None
        self._report = handshake.Report(self._loop, hold.information) if hold.information is not None else None
        self._first: int | None = None  # the first process in the cell
        self._runner = 0  # the process that waits for the order
        self._flooded = False
        self._closed = False
        self._channel: SocketChannel | None = None
        self._cpu_before_us = 0
        self._code: int | None = None
        self.sockets: CellSockets | None = None
        hold.control.setblocking(False)
        self._result = Frame(self._flood)
        self._pipes = [Pipe(self._loop, each, self._flood) for each in (hold.stdout, hold.stderr)]
        self._loop.add_reader(self._outer, self._ended)

    @property
    def user(self) -> int | None:
        """Its user on the host; None if it is the server's own user."""
        return self._hold.user

    @property
    def alive(self) -> bool:
        return not self._given and not self._over.is_set() and self._killed is None

    async def ready(self) -> None:
        """Waits until the launcher has finished the isolation and sent the sockets.

        Raises CellBroken, or OSError where this process has no descriptor left for them.
        """
        if self._report is not None:
            await self._admit(self._report)
        seen = asyncio.Event()
        self._loop.add_reader(self._hold.control, seen.set)
        try:
            await seen.wait()
        finally:
            self._loop.remove_reader(self._hold.control)
        received = handshake.receive(self._hold.control)
        if received is None:
            await self._over.wait()
            self._pipes[1].drain()
            raise CellBroken(explain(self._pipes[1].data.decode("utf-8", "replace")))
        self._runner, sockets = received.process, received.sockets
        if self._hold.user not in (None, received.user):
            _close_all(sockets)
            raise CellBroken(NOT_ITSELF)
        if self._hold.information is not None:
            if len(sockets) != handshake.SOCKETS:  # the kernel drops what does not fit
                _close_all(sockets)
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            for each in sockets:
                each.setblocking(False)
            self.sockets = CellSockets(*sockets)

    async def _admit(self, report: handshake.Report) -> None:
        """Opens the first process in the cell and, if it is to run as another user, lets it switch. Raises
        CellBroken."""
        process = await report.first()
        if process is None:
            return  # it ended, and its output will show why
        try:
            self._first = os.pidfd_open(process)
            if self._hold.user is not None and self._hold.admission is not None:
                cell_users.admit(process, self._hold.user)
                os.write(self._hold.admission, b"1")
        except (ProcessLookupError, BrokenPipeError):
            return  # as above
        except PermissionError as error:
            raise CellBroken(NOT_ADMITTED.format(error.strerror)) from error

    async def run(self, order: Order) -> None:
        """Sends its one order and waits for the result, the end of the program, or too much output.

        Raises SandboxUnavailable.
        """
        self._take(order)
        self._loop.add_reader(self._hold.control, self._replied)
        await self._tell(order)
        await self._over.wait()

    async def connect(self, order: Order) -> SocketChannel:
        """Sends its one order, whose command is to stay and talk, and returns its standard input and output.

        Raises SandboxUnavailable.
        """
        self._take(order)
        for pipe in self._pipes:
            pipe.keeps_end = True
        await self._tell(order)
        self._channel = SocketChannel(self._loop, self._hold.control)
        return self._channel

    def _take(self, order: Order) -> None:
        assert not self._given, "a cell takes one order"
        self._given = True
        for pipe in self._pipes:
            pipe.bytes_max = order.confinement.output_bytes
        self._limit(order.confinement)

    async def _tell(self, order: Order) -> None:
        header = {"env": {**self._hold.env, **order.env}}
        try:
            await self._loop.sock_sendall(self._hold.control, framed(json.dumps(header).encode()))
            await self._loop.sock_sendall(self._hold.control, framed(order.request))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is gone already, and its exit will show how

    def output(self) -> OrderOutput:
        """The output of the order so far."""
        self._drain()
        stdout, stderr = self._pipes
        group = self._hold.group
        result = self._result.complete()
        return OrderOutput(
            code=0 if result is not None else self._code,
            result=result,
            stdout=bytes(stdout.data),
            stderr=bytes(stderr.data),
            truncated=stdout.truncated or stderr.truncated,
            flooded=self._flooded,
            out_of_memory=group is not None and group.ran_out_of_memory(),
            throttled=group is not None and group.was_throttled(),
            cpu_us=max(0, group.cpu_us() - self._cpu_before_us) if group is not None else 0,
            memory_peak_bytes=group.memory_peak_bytes() if group is not None else 0,
        )

    def _drain(self) -> None:
        """Reads what is available: the process may have ended before all of its output was read."""
        for pipe in self._pipes:
            pipe.drain()
        while not self._closed and self._channel is None and self._replied():
            pass

    async def kill(self) -> None:
        """Ends every process in it and removes the cell; returns when nothing of it remains. May be called twice."""
        if self._killed is None:
            self._killed = asyncio.create_task(self._tear_down())
        await asyncio.shield(self._killed)

    async def _tear_down(self) -> None:
        group = self._hold.group
        if group is not None:
            group.lift()
            group.kill()
        if self._first is None and self._report is not None:
            await self._find_first(self._report)
        for each in (self._first, self._outer):
            if each is not None:
                killing.kill(each)
        if self._hold.information is None:
            killing.kill_group(self._hold.process.pid)
        await self._gone.wait()
        if self._first is not None:
            await killing.gone(self._loop, self._first)
        pause = TEARDOWN_EVERY_S
        while group is not None and not group.remove():
            group.kill_each()
            await asyncio.sleep(pause)
            pause = min(
                2 * pause, TEARDOWN_EVERY_S_MAX
            )  # a process that the kernel holds keeps its slot, and uses no CPU here
        self._close()

    async def _find_first(self, report: handshake.Report) -> None:
        """Opens the first process: until it runs on its own, it would outlive a bubblewrap that is killed."""
        with suppress(TimeoutError, OSError):  # there is none; or we cannot hold it, and what is left is found later
            async with asyncio.timeout(REPORT_S):
                if (process := await report.first()) is not None:
                    self._first = os.pidfd_open(process)

    def _close(self) -> None:
        self._drain()  # a caller may still want its output
        self._closed = True
        if self._channel is not None:
            self._channel.close()
        self._loop.remove_reader(self._hold.control)
        for pipe in self._pipes:
            pipe.close()
        if self.sockets is not None and not self._given:
            self.sockets.close()
        self._hold.close()
        if self._first is not None:
            os.close(self._first)

    def _ended(self) -> None:
        """Handles the end of bubblewrap itself, and with it of everything in the cell."""
        assert self._outer is not None, "it ends once"
        self._loop.remove_reader(self._outer)
        os.close(self._outer)
        self._outer = None
        code = self._hold.process.wait()
        self._code = code if code >= 0 and self._killed is None else None  # it passes on how those within were killed
        self._gone.set()
        self._over.set()

    def _replied(self) -> bool:
        """Reads a piece of the result; True if there may be more."""
        if self._result.complete() is not None or self._flooded:
            self._loop.remove_reader(self._hold.control)
            return False
        try:
            data = self._hold.control.recv(CHUNK)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        self._result.add(data)
        if not data or self._result.complete() is not None:
            self._loop.remove_reader(self._hold.control)
        if self._result.complete() is not None:
            self._over.set()
        return bool(data)

    def _flood(self) -> None:
        self._flooded = True
        self._over.set()

    def _limit(self, most: Confinement) -> None:
        """Raises SandboxUnavailable."""
        group = self._hold.group
        try:
            rlimits.limit(self._runner, self._plan, most, grouped=group is not None)
            if group is not None:
                group.limit(most)
                self._cpu_before_us = group.cpu_us()
        except ProcessLookupError:
            return  # it is gone already, and its exit will show how
        except OSError as error:
            raise SandboxUnavailable(f"the limits of a sandbox could not be set: {error.strerror}") from error


def _close_all(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()
