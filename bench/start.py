"""How soon a server answers and what it weighs: start to 200 on /v1/health/, idle memory, imports, small commands.

    python bench/start.py [repeats]

Prints JSON. "first" starts on an empty data directory and makes the schema, "later" finds it there. All times are wall
milliseconds, medians of the repeats (5 unless told), and hold for this machine as busy as it was.
"""

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

KELPIE = str(Path(sys.executable).parent / "kelpie")
SERVE = ("server", "start", "--foreground")
START_S = 60.0
STOP_S = 60.0
PAUSE_S = 0.002
# Imported only by what needs them, never by a starting server.
UNWANTED = ("alembic", "click", "multiprocessing", "openai", "rich", "typer")

# Says at its end what it has imported; a module that was kept out stands in the table as None, and one that is imported
# with its first use has a type of its own until then.
_TELLING = """
import atexit, sys
from kelpie.cli.main import main
from kelpie.world.lazy_imports import LazyModule
ran = lambda: (name for name, it in sys.modules.items() if it and type(it) is not LazyModule)
atexit.register(lambda: print("modules:", *ran(), file=sys.stderr))
main()
"""


def environment(data_dir: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KELPIE_", "OPENAI_"))}
    return kept | {"KELPIE_DATA_DIR": str(data_dir), "KELPIE_PORT": "0", "KELPIE_LOG_LEVEL": "warning"}


class Server:
    """A server process from its start to its end."""

    def __init__(self, data_dir: Path, command: tuple[str, ...] = (KELPIE,)) -> None:
        self._note = data_dir / "kelpie.pid"
        self._errors = data_dir / "stderr.txt"
        started = time.perf_counter()
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen((*command, *SERVE), env=environment(data_dir), stderr=errors)
        self.ready_ms = self._until_ready(started)

    def stop(self) -> tuple[float, str]:
        """Milliseconds that a clean stop takes, and all that the process wrote to standard error."""
        started = time.perf_counter()
        self.process.terminate()
        self.process.wait(STOP_S)
        took_ms = (time.perf_counter() - started) * 1000
        return took_ms, self._errors.read_text(errors="replace")

    def rss_mb(self) -> float | None:
        """Resident memory; None where there is no /proc."""
        status = Path(f"/proc/{self.process.pid}/status")
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return round(int(found[1]) / 1024, 1) if found else None

    def _until_ready(self, started: float) -> float:
        with httpx.Client(trust_env=False, timeout=START_S) as http:
            while time.perf_counter() - started < START_S:
                url = self._url()
                if url and _healthy(http, url):
                    return (time.perf_counter() - started) * 1000
                if self.process.poll() is not None:
                    raise SystemExit(f"the server ended with {self.process.returncode}")
                time.sleep(PAUSE_S)
        self.process.kill()
        raise SystemExit(f"the server did not answer within {START_S:.0f} s")

    def _url(self) -> str | None:
        if not self._note.exists():
            return None
        pid, _, url = self._note.read_text().strip().partition("\n")
        return url if pid == str(self.process.pid) else None


def _healthy(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(f"{url}/v1/health/").status_code == 200
    except httpx.TransportError:
        return False


def starts(repeats: int) -> dict[str, Any]:
    first, later, memory, stops = list[float](), list[float](), list[float](), list[float]()
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as data:
            server = Server(Path(data))
            first.append(server.ready_ms)
            server.stop()
            server = Server(Path(data))
            later.append(server.ready_ms)
            memory.append(server.rss_mb() or 0)
            stops.append(server.stop()[0])
    return {
        "first_start_to_health_ms": _middle(first),
        "later_start_to_health_ms": _middle(later),
        "idle_rss_mb": _middle(memory),
        "stop_ms": _middle(stops),
    }


def commands(repeats: int) -> dict[str, Any]:
    """The commands that scripts call often."""
    with tempfile.TemporaryDirectory() as data:
        server = Server(Path(data))
        env = environment(Path(data))
        try:
            return {
                "kelpie_server_status_ms": _command(("server", "status"), env, repeats),
                "kelpie_version_ms": _command(("version",), env, repeats),
                "bare_python_ms": _timed((sys.executable, "-c", "pass"), env, repeats),
            }
        finally:
            server.stop()


def _command(arguments: tuple[str, ...], env: dict[str, str], repeats: int) -> dict[str, float]:
    return _timed((KELPIE, *arguments), env, repeats)


def _timed(command: tuple[str, ...], env: dict[str, str], repeats: int) -> dict[str, float]:
    times: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - started) * 1000)
    return _middle(times)


def imports() -> dict[str, Any]:
    """What a server that did nothing but start has imported."""
    with tempfile.TemporaryDirectory() as data:
        Server(Path(data)).stop()  # makes the schema, so that this is counted on a later start
        told = Server(Path(data), (sys.executable, "-c", _TELLING)).stop()[1]
    names = told.partition("modules: ")[2].split()
    packages = {name.partition(".")[0] for name in names}
    return {
        "modules": len(names),
        "packages": len(packages),
        "unwanted": [name for name in UNWANTED if name in packages],
    }


def _middle(values: list[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(values), 1), "min": round(min(values), 1), "max": round(max(values), 1)}


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    machine = {"python": platform.python_version(), "system": platform.system(), "cores": os.cpu_count()}
    results = starts(repeats) | commands(repeats) | {"imported_at_start": imports()}
    print(json.dumps({"bench": "start", "repeats": repeats, "machine": machine, "results": results}, indent=2))
    if results["imported_at_start"]["unwanted"]:
        raise SystemExit("a starting server imports what it should not")


if __name__ == "__main__":
    main()
