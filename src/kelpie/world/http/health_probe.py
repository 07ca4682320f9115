"""Probe of a server on this machine, over a bare socket.

Scripts call `kelpie server status` all the time, and the standard HTTP client would be half of its import time.
"""

import json
import socket

ANSWER_BYTES_MAX = 65_536


def version_at(url: str, timeout_s: float = 2.0) -> str | None:
    """The version of the Kelpie that answers at `http://host:port`, or None when none does."""
    authority = url.removeprefix("http://")
    host, _, port = authority.rpartition(":")
    request = f"GET /v1/health/ HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout_s) as connection:
            connection.sendall(request.encode())
            return _version(_read(connection))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # refused, silent, or not Kelpie


def _read(connection: socket.socket) -> bytes:
    answer = b""
    while len(answer) < ANSWER_BYTES_MAX and (piece := connection.recv(4096)):
        answer += piece
    return answer


def _version(answer: bytes) -> str | None:
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0]:
        return None
    return str(json.loads(body)["kelpie_version"])
