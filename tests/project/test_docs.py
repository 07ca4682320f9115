"""Every command and snippet in the documentation is run, page by page, each against a server of its own.

README.md runs the commands as they are installed; the others run forks (tests/command_host.py).
Beside that server runs a stand-in for Ollama, so that what pages say about local models is run too.
"""

import os
import re
import subprocess
import textwrap
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.fake_ollama import fake_ollama
from tests.cli.live import BIN, COMMAND_S, Live, live
from tests.cli.test_help import ALL
from tests.command_host import command_host
from tests.project.fenced import RUNNABLE, Block, blocks

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
# The only blocks that are shown to be run and are not; whoever adds one must say here that it cannot be helped.
NOT_RUN = {
    "README.md": ["it fetches this repository", "the package is installed with the tests"],
    "docs/auth.md": ["it would be reachable from other machines"],
    "docs/cli.md": [
        "it opens an editor",
        "it needs an MCP server",
        "it needs an MCP server",
        "it needs an MCP server with OAuth",
        "it needs a task",
        "it needs a real key",
        "it needs a real key",
        "it needs a provider",
        "it needs a provider",
        "it needs a provider",
        "it opens an editor",
        "its exit code depends on the machine",
    ],
    "docs/clients.md": ["the program is not part of Kelpie", "the package is not part of Kelpie"],
    "docs/mcp.md": ["it needs a package index"],
    "docs/operations.md": ["it follows the log until it is interrupted"],
    "docs/models.md": [
        "it needs a real key",
        "it installs 130 MB and starts a server that does not end",
        "it needs the server above",
        "it needs an Ollama server",
    ],
    "docs/openai.md": ["the package is not part of Kelpie"],
    "docs/security.md": ["its exit code depends on the machine"],
    "docs/quickstart.md": ["the package is installed with the tests"],
}
AS_INSTALLED = ("README.md",)
WRITTEN_URL = "http://127.0.0.1:8283"


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in RUNNABLE and not block.not_run]


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=lambda page: page.name)
def test_what_a_page_tells_to_run_runs(page: Path, tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    with ExitStack() as stack:
        extra = {"OLLAMA_BASE_URL": stack.enter_context(fake_ollama()).url}
        if page.name not in AS_INSTALLED:
            extra["PATH"] = os.pathsep.join((str(stack.enter_context(command_host())), os.environ["PATH"]))
        place = stack.enter_context(live(tmp_path / "data", extra))
        place.serve()
        done = place.kelpie("demo")
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
        place.serve()
        printed = place.kelpie("demo").stdout
        _, shell, python = re.split(r"Over HTTP:\n|From Python .*:\n", printed.partition("Use a real model")[0])
        shell_block = Block(tmp_path / "demo", 0, "sh", textwrap.dedent(shell), None)
        assert '"message_type":"assistant_message"' in run_shell(shell_block, place, tmp_path)
        run_python(Block(tmp_path / "demo", 0, "python", textwrap.dedent(python), None), place, {})


def test_a_block_is_run_or_the_page_says_why_not() -> None:
    odd = [
        f"{block.page.name}:{block.line}: ```{block.language}"
        for page in PAGES
        for block in blocks(page)
        if block.language not in (*RUNNABLE, "text", "ini", "json", "toml", "yaml")
    ]
    assert not odd, "name the language: sh and python are run, the others are shown"


def test_no_fence_is_left_open_or_out_of_sight() -> None:
    for page in PAGES:
        fences = sum(line.lstrip().startswith(("```", "~~~")) for line in page.read_text().splitlines())
        assert fences == 2 * len(blocks(page)), f"{page.name}: a fence is open, indented, or not of backticks"


def test_only_what_cannot_be_run_is_not_run() -> None:
    for page in PAGES:
        reasons = [block.not_run for block in blocks(page) if block.not_run]
        assert reasons == NOT_RUN.get(str(page.relative_to(ROOT)), []), page
        assert page.read_text().count("\n<!-- not run:") == len(reasons), f"{page}: a mark stands before no block"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_a_page_mentions_in_its_text_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for mention in re.findall(r"`(?:\.venv/bin/)?kelpie ([a-z-][^`]*)`", text):
        words = mention.split()
        named = next((" ".join(words[:count]) for count in (2, 1) if " ".join(words[:count]) in ALL), "")
        options = {option for parameter in (*ALL[named].params, *ALL[""].params) for option in parameter.opts}
        known = options | {"--help"}
        unknown = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
        assert not unknown and (named or words[0].startswith("--")), f"{page.name}: kelpie {mention}"
