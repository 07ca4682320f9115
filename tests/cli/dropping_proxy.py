"""A proxy that passes everything on to a server and cuts chosen answers off in the middle."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class DroppingProxy:
    """`cuts` holds, by a part of the request line, how many bytes of each next answer are passed on before the cut."""

    url: str = ""
    cuts: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def room_for(self, request: str) -> int | None:
        """How much of the answer to this request is passed on; None for all."""
        self.asked.append(request)
        left = next((sizes for part, sizes in self.cuts.items() if part in request), [])
        return left.pop(0) if left else None


@contextmanager
def dropping_proxy(port: int) -> Iterator[DroppingProxy]:
    """The proxy in front of the server at a port of this machine, until the end."""
    proxy = DroppingProxy()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=_accept, args=(listener, port, proxy), daemon=True)
        thread.start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(30)


def _accept(listener: socket.socket, port: int, proxy: DroppingProxy) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_pass_on, args=(client, port, proxy), daemon=True).start()


def _pass_on(client: socket.socket, port: int, proxy: DroppingProxy) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        first = client.recv(65536)
        room = proxy.room_for(first.partition(b"\r\n")[0].decode())
        server.sendall(first)
        sending = threading.Thread(target=_copy, args=(client, server, None), daemon=True)
        sending.start()
        _copy(server, client, room)


def _copy(source: socket.socket, target: socket.socket, room: int | None) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data if room is None else data[:room])
            if room is not None:
                room -= len(data)
                if room <= 0:
                    break
        target.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
