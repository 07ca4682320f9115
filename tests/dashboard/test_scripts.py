"""The scripts of the dashboard: their types hold, nothing makes HTML from a string, all of them together stay small."""

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kelpie.server.dashboard.files import dashboard_files
from tests.parts import lacks

STATIC = Path(__file__).parents[2] / "src" / "kelpie" / "server" / "dashboard" / "static"
FOLDER = Path(__file__).parent
BYTES_MAX = 300_000
MAKES_HTML = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTMLUnsafe"
    r"|\beval\(|new Function|\.srcdoc|javascript:|setAttribute\(\s*[\"'](style|on)"
)


def test_the_types_hold() -> None:
    checker = FOLDER / "node_modules" / ".bin" / "tsc"
    if not checker.exists() or shutil.which("node") is None:
        lacks("browser", "the type checker of tests/dashboard is not installed")
    found = subprocess.run((checker, "-p", FOLDER), capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("file", sorted(STATIC.rglob("*.js")), ids=lambda file: file.relative_to(STATIC).as_posix())
def test_no_script_makes_html_from_a_string(file: Path) -> None:
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith(("//", "*", "/*"))]
    found = [line for line in lines if MAKES_HTML.search(line) and "FORBIDDEN" not in line]
    assert found == []


def test_all_files_together_are_small_and_name_no_other_host() -> None:
    files = {path: each.content for path, each in dashboard_files().files.items()}
    assert sum(map(len, files.values())) + len(dashboard_files().page.content) < BYTES_MAX
    for path, content in files.items():
        hosts = re.findall(r"https?://[a-z0-9.]+", content.decode())
        assert [host for host in hosts if host != "http://www.w3.org"] == [], path
    assert all(gzip.decompress(each.compressed) == each.content for each in dashboard_files().files.values())
