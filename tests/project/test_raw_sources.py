"""Outside `world/` nothing touches a raw source of time, chance, ids, files, processes or the network."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.project.raw_sources import violations

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "src" / "kelpie"
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
BANNED = CONFIG["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]


def modules_outside_the_world() -> list[Path]:
    return sorted(path for path in PRODUCT.rglob("*.py") if path.relative_to(PRODUCT).parts[0] != "world")


# The composition root is where the real adapters are made, and with them the one generator that needs no seed.
ALLOWED = {("local.py", "random.Random() without a seed is not repeatable")}


def test_no_module_reaches_around_its_ports() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in modules_outside_the_world()
        for line, what in violations(path.read_text())
        if (str(path.relative_to(PRODUCT)), what) not in ALLOWED
    ]
    assert not found, "\n".join(found)


def test_http_clients_go_over_the_network_of_the_world() -> None:
    made = {
        path.relative_to(PRODUCT): text
        for path in modules_outside_the_world()
        if "httpx.AsyncClient(" in (text := path.read_text())
    }
    assert {path.parts[0] for path in made} <= {"agent", "llm", "sim"}
    for path, text in made.items():
        assert text.count("httpx.AsyncClient(") == text.count("httpx.AsyncClient(transport=transport,"), path


@pytest.mark.parametrize(
    "snippet",
    [
        "open('x')",
        "import os\nos.replace('a', 'b')",
        "import os\nos.path.exists('a')",
        "from os import kill",
        "import os.path\nos.path.getsize('a')",
        "import random\nrandom.triangular()",
        "from random import betavariate",
        "import random\nrandom.Random()",
        "from pathlib import Path\nPath('a').read_text()",
        "import pathlib\np = pathlib.Path('a')\np.exists()",
        "from pathlib import Path\nPath.home()",
        "import httpx\nhttpx.AsyncClient(base_url='x')",
        "import signal\nsignal.signal(2, None)",
        "eval('1')",
    ],
)
def test_the_check_itself_bites(snippet: str) -> None:
    assert list(violations(snippet))


@pytest.mark.parametrize(
    "snippet",
    [
        "import os\nos.environ.get('A')\nos.path.join('a', 'b')",
        "import random\nrng: random.Random = random.Random(1)\nrng.choice([1])",
        "from pathlib import PurePosixPath\nPurePosixPath('a').name",
        "class Store:\n    def open(self): ...\nStore().open()",
        "import httpx\nhttpx.AsyncClient(transport=t)",
    ],
)
def test_the_check_lets_pure_code_pass(snippet: str) -> None:
    assert list(violations(snippet)) == []


def ruff(snippet: str, place: str) -> str:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251", "--output-format", "concise"]
    done = subprocess.run(
        [*command, "--stdin-filename", place, "-"], input=snippet, capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    return done.stdout


def use_of(name: str) -> str:
    """A snippet that uses the name: its module imported plainly, then the attribute taken."""
    module = name.split(".")[0]
    return f"import {name}\n" if name == module or name in _MODULES else f"import {module}\n{name}\n"


_MODULES = {"urllib.request", "http.client", "concurrent.futures", "sqlalchemy.ext.asyncio"}


def test_ruff_refuses_every_banned_source() -> None:
    snippets = [use_of(name) for name in BANNED]
    # One file, one name a line: every name must be reported on its own.
    report = ruff("".join(snippets), "src/kelpie/agent/snippet.py")
    silent = [name for name in BANNED if f"`{name}` is banned" not in report]
    assert not silent


@pytest.mark.parametrize(
    "snippet",
    [
        "from datetime import datetime\ndatetime.now()",
        "from time import monotonic\n",
        "from uuid import uuid4\nuuid4()",
        "from random import choice\n",
        "import asyncio as a\na.create_subprocess_exec('x')",
        "from concurrent.futures import ThreadPoolExecutor\n",
        "from secrets import token_hex\n",
        "from subprocess import run\n",
    ],
)
def test_ruff_sees_through_the_form_of_the_import(snippet: str) -> None:
    assert "TID251" in ruff(snippet, "src/kelpie/agent/snippet.py")


def test_the_names_everyone_fears_are_on_the_list() -> None:
    expected = {"time", "datetime.datetime.now", "random.random", "secrets", "uuid.uuid4", "os.urandom", "socket"}
    expected |= {"subprocess", "threading", "concurrent.futures", "asyncio.create_subprocess_exec", "httpx.Client"}
    assert expected <= set(BANNED)


def test_world_may_and_types_may() -> None:
    assert "TID251" not in ruff("import time\ntime.time()", "src/kelpie/world/snippet.py")
    allowed = "import random\nfrom datetime import datetime\nrng = random.Random(1)\nmoment: datetime\n"
    assert "TID251" not in ruff(allowed, "src/kelpie/agent/snippet.py")
