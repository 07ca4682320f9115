"""Code that tries to leave its cell. Each attack says what it got; each is contained, and the next call works."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kelpie.core.tools.confinement import MEGABYTE, Confinement
from kelpie.sandbox.port import JobEnding, JobResult, Mount, Runner, SandboxJob
from kelpie.sandbox.process import ProcessSandbox
from kelpie.world.cells.bubblewrap import BubblewrapCells
from kelpie.world.cells.users import CellUsers
from kelpie.world.clock import SystemClock
from tests.sandbox.jobs import FORKS, command, function, script

BRIEF = Confinement(wall_s=20)
# What attacks share: `attempt` tells whether a deed was refused, and how.
TOOLS = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(deed):
    try:
        return f"got {deed()!r}"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
def call(number, *arguments):
    ctypes.set_errno(0)
    answer = libc.syscall(ctypes.c_long(number), *arguments)
    if answer < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return answer
"""


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Attacked:
    """A sandbox, and proof after every attack that it still does its work."""

    def __init__(self, sandbox: ProcessSandbox, cells: BubblewrapCells) -> None:
        self._sandbox = sandbox
        self.has_groups = cells.has_groups
        # The kernel counts no processes of root.
        self.counted = cells.has_groups or os.getuid() != 0 or isinstance(cells.users, CellUsers)

    async def by(self, job: SandboxJob) -> JobResult:
        ended = await self._sandbox.run(replace(job, confinement=job.confinement))
        after = await self._sandbox.run(function("def tool(word): return word", word="next"))
        assert after.result is not None and json.loads(after.result)["value"] == "next"
        return ended

    async def told_by(self, source: str, **arguments: Any) -> Any:
        """What the function `tool` of an attack gives back."""
        ended = await self.by(function(TOOLS + source, most=BRIEF, **arguments))
        assert ended.result is not None, ended
        told = json.loads(ended.result)
        assert told["ok"], told
        return told["value"]


@pytest.fixture
async def attacked(cells: BubblewrapCells) -> AsyncIterator[Attacked]:
    sandbox = ProcessSandbox(cells, SystemClock(), warm_max=1)
    yield Attacked(sandbox, cells)
    await sandbox.close()


async def test_files_of_the_host_are_not_there(attacked: Attacked, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    paths = [str(tmp_path / "secret"), "/etc/shadow", "/proc/1/root/etc/shadow", "/proc/self/cwd/../etc/shadow"]
    paths += ["/root/.ssh", "/home", "/var/lib", "/sys/class", "/boot", "/proc/kcore", "/proc/1/mem", "/dev/sda"]
    source = """
def tool(paths):
    return [attempt(lambda: os.listdir(path) if os.path.isdir(path) else open(path).read(9)) for path in paths]
"""
    assert not [each for each in await attacked.told_by(source, paths=paths) if each.startswith("got")]


async def test_nothing_can_be_written_but_scratch(attacked: Attacked, tmp_path: Path) -> None:
    places = [
        "/",
        "/usr",
        "/usr/bin",
        "/etc",
        "/run",
        "/run/kelpie",
        "/dev",
        "/root",
        "/proc",
        "/proc/self",
        str(tmp_path),
    ]
    source = """
def tool(places):
    files = [os.path.join(place, "planted") for place in places]
    files += ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/etc/passwd", "/run/kelpie/launcher.py"]
    files.append(sys.executable)
    def write(file):
        with open(file, "a") as opened:
            opened.write("x")
    return [attempt(lambda: write(file)) for file in files] + [attempt(lambda: write("/tmp/allowed"))]
"""
    *refused, allowed = await attacked.told_by(source, places=places)
    assert not [each for each in refused if each.startswith("got")] and allowed == "got None"
    assert not (tmp_path / "planted").exists()


async def test_another_cell_s_scratch_is_out_of_sight(attacked: Attacked, tmp_path: Path) -> None:
    shared = (Mount(str(tmp_path), "/shared", writable=True),)
    os.mkfifo(tmp_path / "held")
    first = "open('/tmp/mine', 'w').write('secret')\nopen('/shared/held', 'w').close()\nimport time\ntime.sleep(60)"
    holding = asyncio.create_task(attacked._sandbox.run(script(first, mounts=shared)))
    second = """
open('/shared/held').close()
import glob
print(glob.glob('/tmp/*'), [each for each in glob.glob('/proc/[0-9]*/root/tmp/*') if 'mine' in each])
"""
    ended = await attacked.by(script(second, mounts=shared))
    assert ended.stdout == b"[] []\n", ended
    holding.cancel()


async def test_no_network_is_reached(attacked: Attacked, tmp_path: Path) -> None:
    path, name = str(tmp_path / "socket"), f"\0kelpie-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        unix.bind(path)
        unix.listen()
        abstract.bind(name)
        abstract.listen()
        source = """
def connect(family, kind, address):
    with socket.socket(family, kind) as out:
        out.settimeout(3)
        out.connect(address)
        if kind == socket.SOCK_DGRAM:
            out.send(b"out")
            raise OSError(errno.ENETUNREACH, "sent into an empty network")
def tool(tcp, udp, path, abstract):
    inet, stream = socket.AF_INET, socket.SOCK_STREAM
    tries = [(inet, stream, ("127.0.0.1", tcp)), (inet, socket.SOCK_DGRAM, ("127.0.0.1", udp))]
    hosts = ("169.254.169.254", "10.0.0.1", "1.1.1.1")
    tries += [(inet, kind, (host, 80)) for kind in (stream, socket.SOCK_DGRAM) for host in hosts]
    tries += [(socket.AF_INET6, stream, ("fe80::1", 80)), (socket.AF_INET6, stream, ("fd00:ec2::254", 80))]
    tries += [(socket.AF_UNIX, stream, path), (socket.AF_UNIX, stream, abstract)]
    told = [attempt(lambda: connect(*each)) for each in tries]
    return told + [attempt(lambda: socket.socket(family, socket.SOCK_RAW)) for family in (16, 17, 38, 40)]
"""
        ports = {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
        told = await attacked.told_by(source, **ports, path=path, abstract=name)
        assert not [each for each in told if each.startswith("got")], told
        with pytest.raises(BlockingIOError):
            udp.recv(100)


async def test_a_fork_bomb_is_bounded(attacked: Attacked) -> None:
    source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    ended = await attacked.by(script(source, Confinement(wall_s=1.0)))
    assert ended.how is JobEnding.timed_out
    if attacked.counted:
        assert await attacked.told_by(FORKS) < 70


async def test_a_memory_bomb_dies_alone(attacked: Attacked) -> None:
    ended = await attacked.by(script("held = []\nwhile True: held.append(bytearray(8 << 20))"))
    if attacked.has_groups:
        assert ended.how is JobEnding.out_of_memory and ended.memory_peak_bytes <= 256 * MEGABYTE
        many = (
            "import os\nfor _ in range(7): os.fork()\nheld = bytearray(b'x') * (64 << 20)\nimport time\ntime.sleep(9)"
        )
        await attacked.by(script(many, Confinement(wall_s=3)))
    else:
        assert b"MemoryError" in ended.stderr


async def test_the_disk_cannot_be_filled(attacked: Attacked) -> None:
    source = """
def fill(path):
    written = 0
    with open(path, "wb", buffering=0) as file:
        while True:
            written += file.write(b"x" * (1 << 20))
            if written > 200 << 20:
                return written
def tool():
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return [attempt(lambda: fill(path)) for path in ("/tmp/fill", "/tmp/more", "/dev/shm/fill")]
"""
    told = await attacked.told_by(source)
    assert set(told) <= {"ENOSPC", "EFBIG"}, told


async def test_floods_of_output_and_forged_results_are_ended(attacked: Attacked) -> None:
    small = Confinement(output_bytes=4096)
    ended = await attacked.by(script("import os\nwhile True: os.write(2, b'x' * 65536)", small))
    assert ended.how is JobEnding.too_much_output and len(ended.stderr) == 4096
    control = """
import os, time
for descriptor in range(3, 64):
    try: os.write(descriptor, {!r})
    except OSError: pass
time.sleep(9)
"""
    ended = await attacked.by(script(control.format(b"\xff\xff\xff\xff" + b"x" * 100)))
    assert ended.how is JobEnding.too_much_output and ended.result is None
    ended = await attacked.by(script(control.format(b"\x00\x00\x00\x03abcmore")))
    assert ended.result == b"abc", "it may lie about its own result, and about nothing else"


async def test_descriptors_sent_to_us_are_dropped(attacked: Attacked) -> None:
    before = _descriptors()
    source = """
def tool():
    for fd in range(3, 64):
        try:
            out = socket.socket(fileno=os.dup(fd))
            socket.send_fds(out, [b"\\0"], [0] * 50)
        except OSError:
            pass
"""
    await attacked.by(function(TOOLS + source, most=Confinement(wall_s=3)))
    await attacked._sandbox.close()
    assert _descriptors() <= before


async def test_a_process_that_detached_itself_does_not_live_on(attacked: Attacked, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "door")
    door = os.open(tmp_path / "door", os.O_RDONLY | os.O_NONBLOCK)
    source = """
import os, signal, time
held = open('/data/door', 'w')
if os.fork() == 0:
    os.setsid()
    for each in range(1, 32):
        if each not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(each, signal.SIG_IGN)
    if os.fork() == 0:
        while True:
            time.sleep(1)
    os._exit(0)
os.wait()
"""
    ended = await attacked.by(script(source, mounts=(Mount(str(tmp_path), "/data", writable=True),)))
    assert (ended.how, ended.code) == (JobEnding.finished, 0)
    assert os.read(door, 10) == b"", "nobody holds the other end any more"
    os.close(door)


async def test_system_calls_that_reach_past_the_walls_are_refused(attacked: Attacked) -> None:
    numbers = {name: pair[os.uname().machine == "aarch64"] for name, pair in _CALLS.items()}
    source = """
def tool(numbers):
    told = {name: attempt(lambda: call(number, 0, 0, 0, 0, 0, 0)) for name, number in numbers.items()}
    told["clone"] = attempt(lambda: call(numbers["clone"], 0x10000000 | 17, 0, 0, 0, 0))
    told["x32"] = attempt(lambda: call(0x40000000 + 39))
    told["fork"] = "works" if os.fork() == 0 and os._exit(0) is None else "works"
    return told
"""
    told = await attacked.told_by(source, numbers=numbers)
    assert told.pop("clone3") == told.pop("x32") == told.pop("io_uring_setup") == "ENOSYS"
    assert told.pop("fork") == "works"
    assert set(told.values()) == {"EPERM"}, told


_CALLS = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219), "kexec_load": (246, 104),
    "init_module": (175, 105), "reboot": (169, 142), "settimeofday": (164, 170), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "fsopen": (430, 430), "sethostname": (170, 161), "io_uring_setup": (425, 425),
    "clone3": (435, 435), "clone": (56, 220),
}  # fmt: skip


async def test_it_has_no_privileges_and_cannot_get_any(attacked: Attacked) -> None:
    source = """
def tool():
    status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
    told = {name: status[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp")}
    told["user"] = [os.getuid(), os.geteuid(), os.getgroups()]
    told["mknod"] = attempt(lambda: os.mknod("/tmp/disk", 0o060600, os.makedev(8, 0)))
    told["setuid"] = attempt(lambda: os.setuid(0))
    told["tiocsti"] = attempt(lambda: __import__("fcntl").ioctl(0, 0x5412, b"x"))
    return told
"""
    told = await attacked.told_by(source)
    assert {told[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}
    assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")
    assert told["user"][:2] == [1000, 1000]
    assert not [told[name] for name in ("mknod", "setuid", "tiocsti") if told[name].startswith("got")]
    ended = await attacked.by(command("unshare", "--user", "--map-root-user", "id"))
    assert ended.code != 0 and ended.stdout == b""


async def test_no_program_is_left_that_runs_as_its_owner(attacked: Attacked, tmp_path: Path) -> None:
    """Whose code owns a file in a workspace is the server's own user outside: root, where that is root."""
    source = """
import os
def attempt(deed):
    try:
        deed()
        print("done")
    except PermissionError:
        print("refused")
open("/data/program", "w").close()
for bits in (0o4755, 0o2755):
    attempt(lambda: os.chmod("/data/program", bits))
    held = os.open("/data/program", os.O_RDONLY)
    attempt(lambda: os.fchmod(held, bits))
    attempt(lambda: os.open("/data/new", os.O_CREAT | os.O_WRONLY, bits))
    attempt(lambda: os.mknod("/data/other", bits | 0o100000))
    attempt(lambda: os.chmod("program", bits, dir_fd=os.open("/data", os.O_RDONLY)))
attempt(lambda: os.chmod("/data/program", 0o755))
attempt(lambda: os.open("/data/program", os.O_RDONLY, 0o4755))
"""
    ended = await attacked.by(script(source, mounts=(Mount(str(tmp_path), "/data", writable=True),)))
    assert ended.stdout.split() == [b"refused"] * 10 + [b"done"] * 2, ended
    assert not (tmp_path / "program").stat().st_mode & 0o6000


async def test_room_on_the_disk_is_not_taken_without_writing(attacked: Attacked, tmp_path: Path) -> None:
    source = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
held = os.open("/data/large", os.O_CREAT | os.O_WRONLY)
print(libc.fallocate(held, 0, ctypes.c_long(0), ctypes.c_long(200 << 20)), os.strerror(ctypes.get_errno()))
os.posix_fallocate(held, 0, 1 << 20)
print(os.stat("/data/large").st_size)
"""
    ended = await attacked.by(script(source, mounts=(Mount(str(tmp_path), "/data", writable=True),)))
    assert ended.stdout == b"-1 Operation not supported\n1048576\n", ended


async def test_parts_of_the_network_that_nobody_needs_are_closed(attacked: Attacked) -> None:
    source = """
def tool():
    told = [attempt(lambda: socket.socket(family, kind, protocol).close())
            for family in (2, 10) for kind, protocol in ((1, 262), (2, 136), (1, 132), (5, 132), (2, 115))]
    plain = [attempt(lambda: socket.socket(family, kind, protocol).close())
             for family, kind, protocol in ((2, 1, 0), (2, 1, 6), (2, 2, 17), (1, 1, 0), (10, 1, 6))]
    with socket.socket() as out:
        ulp = attempt(lambda: out.setsockopt(6, 31, b"tls"))
        plain.append(attempt(lambda: out.setsockopt(6, 1, 1)))
    return [set(told) == {"EPROTONOSUPPORT"}, set(plain), ulp]
"""
    source = source.replace("set(plain)", "sorted(set(plain))")
    assert await attacked.told_by(source) == [True, ["got None"], "ENOPROTOOPT"]


async def test_nothing_of_the_server_shows_through_proc(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KELPIE_TEST_SECRET", "secret-of-the-server")
    source = """
def tool():
    import glob
    told = ""
    for pattern in ("environ", "cmdline", "maps", "comm"):
        for path in glob.glob(f"/proc/[0-9]*/{pattern}"):
            try:
                told += open(path, errors="replace").read()
            except OSError:
                pass
    return [told, sorted(int(each) for each in os.listdir("/proc") if each.isdigit())]
"""
    told, processes = await attacked.told_by(source)
    assert "secret-of-the-server" not in told and str(Path.cwd()) not in told and "kelpie.db" not in told
    assert len(processes) <= 3, "it sees itself and the first process of its cell"


async def test_descriptors_of_the_server_are_not_inherited(attacked: Attacked, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        told = await attacked.told_by("""
def tool():
    links = [attempt(lambda: os.readlink(f"/proc/self/fd/{each}")) for each in os.listdir("/proc/self/fd")]
    return sorted(each for each in links if each != "ENOENT")
""")
    kinds = [each.removeprefix("got '").partition(":")[0].strip("'") for each in told]
    assert kinds == ["/dev/null", "pipe", "pipe", "socket"], told


async def test_a_command_is_given_its_three_streams_and_no_way_to_answer_for_itself(attacked: Attacked) -> None:
    ended = await attacked.by(command("sh", "-c", "ls -l /proc/self/fd | sed -n 's/.* -> //p'"))
    kinds = [each.partition(b":")[0] for each in ended.stdout.split(b"\n")[:-1]]
    assert [each for each in kinds if not each.startswith(b"/proc")] == [b"/memfd", b"pipe", b"pipe"], ended


async def test_signals_reach_nobody_outside(attacked: Attacked) -> None:
    source = f"""
def tool():
    told = [attempt(lambda: os.kill(pid, 9)) for pid in ({os.getpid()}, {os.getppid()})]
    told.append(attempt(lambda: os.kill(1, 15)))
    return told
"""
    assert set(await attacked.told_by(source)) <= {"ESRCH", "EPERM", "got None"}
    ended = await attacked.by(script("import os\nos.kill(-1, 9)\nos.kill(os.getppid(), 9)\nprint('here')"))
    assert ended.how in (JobEnding.finished, JobEnding.crashed)


async def test_a_symbolic_link_in_a_workspace_leads_nowhere(attacked: Attacked, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "link").symlink_to(tmp_path / "outside")
    source = """
import os
print(os.path.exists("/data/link"))
os.symlink("/proc/1/root", "/data/root")
print(os.path.exists("/data/root/etc/shadow"))
"""
    ended = await attacked.by(script(source, mounts=(Mount(str(workspace), "/data", writable=True),)))
    assert ended.stdout == b"False\nFalse\n", ended


async def test_a_time_out_does_not_ask(attacked: Attacked) -> None:
    source = """
import signal
for each in (1, 2, 15):
    signal.signal(each, signal.SIG_IGN)
print("begun", flush=True)
while True: pass
"""
    ended = await attacked.by(script(source, Confinement(wall_s=3.0)))
    assert (ended.how, ended.stdout) == (JobEnding.timed_out, b"begun\n")


async def test_arguments_are_data(attacked: Attacked) -> None:
    nasty = "'); import os; os.system('touch /tmp/owned') #\n\"\"\"\x00${IFS}`id`"
    source = "def tool(text, **others): return [text, sorted(others), __import__('os').listdir('/tmp')]"
    told = await attacked.told_by(source, text=nasty, **{"__class__": 1, "a b": 2})
    assert told == [nasty, ["__class__", "a b"], []]
    ended = await attacked.by(SandboxJob(Runner.command, json.dumps({"argv": ["echo", "$(id)", "; id"]}).encode()))
    assert ended.stdout == b"$(id) ; id\n"
