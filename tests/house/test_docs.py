"""Every command and snippet in the documentation is run, page by page, each against a server of its own."""

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.cli.live import BIN, COMMAND_S, Live, live
from tests.house.fenced import RUNNABLE, Block, blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN_URL = "http://127.0.0.1:8283"


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in RUNNABLE and not block.not_run]


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=lambda page: page.name)
def test_what_a_page_tells_to_run_runs(page: Path, tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    with live(tmp_path / "data") as place:
        for arguments in (("server", "start"), ("demo",)):
            done = place.kelpie(*arguments)
            assert done.returncode == 0, done.stderr
        for block in runnable(page):
            if block.language == "sh":
                run_shell(block, place, tmp_path)
            else:
                run_python(block, place, names)


def run_shell(block: Block, place: Live, cwd: Path) -> str:
    script = block.text.replace(WRITTEN_URL, place.url).replace(".venv/bin/", "")
    # The set-up is that of the running tests; what make does after it is the real thing.
    script = script.replace("make run", f"make -C '{ROOT}' -o .venv/.installed-run BIN='{BIN}' run")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=place.env, cwd=cwd, capture_output=True, text=True, timeout=COMMAND_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, f"{block.page.name}:{block.line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_python(block: Block, place: Live, names: dict[str, object]) -> None:
    """Snippets of a page continue one another."""
    source = "\n" * block.line + block.text.replace(WRITTEN_URL, place.url)
    exec(compile(source, block.page.name, "exec"), names)


def test_what_the_demo_command_prints_runs(tmp_path: Path) -> None:
    with live(tmp_path / "data") as place:
        place.kelpie("server", "start")
        printed = place.kelpie("demo").stdout
        _, shell, python = re.split(r"Over HTTP:\n|From Python .*:\n", printed.partition("Stop the server:")[0])
        shell_block = Block(tmp_path / "demo", 0, "sh", textwrap.dedent(shell), None)
        assert '"message_type":"assistant_message"' in run_shell(shell_block, place, tmp_path)
        run_python(Block(tmp_path / "demo", 0, "python", textwrap.dedent(python), None), place, {})


def test_a_block_is_run_or_the_page_says_why_not() -> None:
    odd = [
        f"{block.page.name}:{block.line}: ```{block.language}"
        for page in PAGES
        for block in blocks(page)
        if block.language not in (*RUNNABLE, "text", "ini", "json", "toml")
    ]
    assert not odd, "name the language: sh and python are run, the others are shown"


def test_no_fence_is_left_open() -> None:
    for page in PAGES:
        fences = sum(line.startswith("```") for line in page.read_text().splitlines())
        assert fences == 2 * len(blocks(page)), page.name
