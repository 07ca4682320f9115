"""A package index on this machine for tests: pages of pip and npm by their paths, and packages made in memory."""

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Web:
    """Pages by their paths, at a port of this machine, and the requests for them. It also answers as a proxy: then the
    paths are whole addresses."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.authorization: str | None = None  # that a request must have
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked.append(self.path)
                web.headers.append(dict(self.headers))
                page = web.pages.get(self.path)
                refused = web.authorization is not None and self.headers["Authorization"] != web.authorization
                self.send_response(401 if refused else 404 if page is None else 200)
                if refused:
                    self.send_header("WWW-Authenticate", 'Basic realm="index"')
                    page = None
                self.send_header("Content-Type", "application/json" if (page or b"")[:1] == b"{" else "text/html")
                self.send_header("Content-Length", str(len(page or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(page or b"")

            do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.address = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add_wheel(self, name: str, *metadata: str, before: str = "", files: Mapping[str, str] | None = None) -> None:
        """Adds a package for pip; `before` is the address that the paths follow, for a proxy."""
        self.pages[f"{before}/simple/{name}/"] = f'<a href="/{name}-1-py3-none-any.whl">{name}</a>'.encode()
        self.pages[f"{before}/{name}-1-py3-none-any.whl"] = wheel(name, *metadata, files=files)

    def add_npm(self, name: str, **told: Any) -> None:
        """Adds a package for npm."""
        told = {"name": name, "version": "1.0.0", **told}
        packed = archive({"package/package.json": json.dumps(told)})
        about = {"tarball": f"{self.address}/{name}.tgz", "shasum": hashlib.sha1(packed).hexdigest()}
        page = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**told, "dist": about}}}
        self.pages[f"/{name}"] = json.dumps(page).encode()
        self.pages[f"/{name}.tgz"] = packed


def wheel(name: str, *metadata: str, files: Mapping[str, str] | None = None) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr(f"{name}.py", "x = 1\n")
        told = "\n".join(("Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *metadata, ""))
        file.writestr(f"{name}-1.dist-info/METADATA", told)
        file.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{name}-1.dist-info/RECORD", "")
        for path, text in (files or {}).items():
            file.writestr(path, text)
    return data.getvalue()


def archive(files: Mapping[str, str], links: Sequence[tuple[str, str]] = ()) -> bytes:
    """A compressed archive that begins with symbolic links, each a name and a target."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as file:
        for name, target in links:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            file.addfile(link)
        for name, text in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(text.encode()), 0o755
            file.addfile(about, io.BytesIO(text.encode()))
    return data.getvalue()
