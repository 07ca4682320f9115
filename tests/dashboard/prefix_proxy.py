"""A proxy that serves a server under a path prefix, as nginx does with `location /prefix/`; streams pass through."""

import contextlib
import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PIECE = 65536
_SKIPPED = ("connection", "keep-alive", "transfer-encoding", "content-length")


def _handler(prefix: str, target: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _forward(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length) if length else None
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _SKIPPED}
            server = http.client.HTTPConnection(urlsplit(target).netloc, timeout=60)
            server.request(self.command, self.path.removeprefix(prefix), body, headers)
            answer = server.getresponse()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _SKIPPED:
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            with contextlib.suppress(OSError):
                while piece := answer.read1(PIECE):
                    self.wfile.write(piece)
                    self.wfile.flush()
            self.close_connection = True

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _forward

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


@contextmanager
def prefix_proxy(target: str, prefix: str) -> Iterator[str]:
    """The address under which the server at `target` is found."""
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler(prefix, target))
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}{prefix}"
    finally:
        proxy.shutdown()
        proxy.server_close()
