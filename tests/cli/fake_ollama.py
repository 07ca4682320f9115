"""An Ollama over real sockets, as much of it as the command line needs: models that come and go, short answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EMBEDS = "nomic-embed-text:latest"


class Ollama:
    def __init__(self) -> None:
        self.models = ["small:latest", EMBEDS]
        self.url = ""

    def details(self, name: str) -> dict[str, Any]:
        able = ["embedding"] if name == EMBEDS else ["completion", "tools"]
        info = {"general.architecture": "x", "x.context_length": 8192, "x.embedding_length": 768}
        return {"capabilities": able, "model_info": info, "details": {}}

    def pull(self, name: str) -> list[dict[str, Any]]:
        if name == "absent":
            return [{"status": "pulling manifest"}, {"error": "pull model manifest: file does not exist"}]
        self.models.append(name)
        steps = [{"status": "pulling", "completed": done, "total": 100} for done in (1, 12, 55, 100)]
        return [{"status": "pulling manifest"}, *steps, {"status": "success"}]


@contextmanager
def fake_ollama() -> Iterator[Ollama]:
    ollama = Ollama()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/":
                self._say(b"Ollama is running", "text/plain")
            elif self.path == "/api/tags":
                self._json({"models": [{"name": name} for name in ollama.models]})
            else:
                self._json({"error": "not found"}, 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/api/show":
                self._json(ollama.details(body["model"]))
            elif self.path == "/api/pull":
                lines = "".join(json.dumps(step) + "\n" for step in ollama.pull(body["model"]))
                self._say(lines.encode(), "application/x-ndjson")
            elif self.path == "/api/chat":
                message = {"role": "assistant", "content": "ok"}
                self._json({"model": body["model"], "message": message, "done": True, "done_reason": "stop"})
            else:
                self._json({"error": "not found"}, 404)

        def do_DELETE(self) -> None:
            name = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"]
            if name in ollama.models:
                ollama.models.remove(name)
                self._say(b"", "text/plain")
            else:
                self._json({"error": f"model '{name}' not found"}, 404)

        def _json(self, value: Any, status: int = 200) -> None:
            self._say(json.dumps(value).encode(), "application/json", status)

        def _say(self, data: bytes, kind: str, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    ollama.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield ollama
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
