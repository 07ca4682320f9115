"""The first program in a cell: it finishes the walls from within, hands out the doors, and waits for its one order.

It runs inside the cell with the standard library alone and is never imported by the server. What it does before the
order arrives is trusted; from the order on, everything in this process belongs to the code that was ordered. Every
import here is a part of each start: `_socket` stands for `socket`, and `quick_json` for `json`.
"""

import _socket
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # inside the cell these modules stand alone
    from typing import Any

    from kelpie.world.cell_programs import landlock, python_runner, quick_json
else:
    import landlock
    import python_runner
    import quick_json

LISTENERS_WAITING_MAX = 64


def main() -> None:
    """Its arguments are the descriptor of the control socket, and the plan as JSON."""
    control = _socket.socket(fileno=int(sys.argv[1]))
    plan: dict[str, Any] = quick_json.loads(sys.argv[2].encode())
    del sys.path[0]  # these programs; what is ordered finds none of them
    doors = [_listener(port) for port in plan["ports"]]
    version = landlock.restrict(plan["writable"])
    descriptors = b"".join(door.fileno().to_bytes(4, sys.byteorder) for door in doors)
    told = quick_json.dumps({"landlock": version})
    control.sendmsg([_framed(told)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
    for door in doors:
        door.close()
    if plan["runner"] == "node":
        os.set_inheritable(control.fileno(), True)
        os.execv(plan["node"], [plan["node"], *plan["arguments"], str(control.fileno())])
    if plan["runner"] == "python":
        python_runner.prepare(lambda seconds: bool(select.select([control], (), (), seconds)[0]))
    header: dict[str, Any] = quick_json.loads(_read_frame(control))
    request = _read_frame(control)
    os.environ.clear()
    os.environ.update(header["env"])
    if plan["runner"] == "command":
        os.set_inheritable(control.fileno(), False)
        _become(quick_json.loads(request), control.fileno())
    python_runner.run(request, lambda result: control.sendall(_framed(result)))


def _listener(port: int) -> _socket.socket:
    door = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    door.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    door.bind(("127.0.0.1", port))
    door.listen(LISTENERS_WAITING_MAX)
    return door


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


def _read_frame(control: _socket.socket) -> bytes:
    return _read(control, int.from_bytes(_read(control, 4)))


def _read(control: _socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        chunk = control.recv(min(length - len(data), 1 << 20))
        if not chunk:
            os._exit(0)  # nobody is there any more who would give an order
        data += chunk
    return bytes(data)


def _become(request: "dict[str, Any]", control: int) -> None:
    """Turns this process into the command. One that is to talk has the control socket as its standard input and output;
    any other finds its standard input in a file that only it has."""
    if request.get("talks"):
        os.set_blocking(control, True)
        os.dup2(control, 0)
        os.dup2(control, 1)
    else:
        _give_input(request.get("stdin", "").encode())
    argv: list[str] = request["argv"]
    try:
        os.chdir(request.get("cwd") or os.environ["HOME"])
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _give_input(data: bytes) -> None:
    stdin = os.memfd_create("stdin")
    while data:
        data = data[os.write(stdin, data) :]
    os.lseek(stdin, 0, os.SEEK_SET)
    os.dup2(stdin, 0)
