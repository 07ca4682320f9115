"""What scripts call often must not load the rig. No timing here: what is not imported costs nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("typer", "rich", "fastapi", "starlette", "sqlalchemy", "pydantic", "uvicorn", "httpx", "alembic")


def loaded_by(code: str, data_dir: Path) -> set[str]:
    """The top-level modules that are loaded once the code has run."""
    report = "import sys as _s; print(*sorted({name.split('.')[0] for name in _s.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        env={"KELPIE_DATA_DIR": str(data_dir), "PATH": ""},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["server", "status"]])
def test_quick_commands_load_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    loaded = loaded_by(f"from kelpie.cli.main import run; run({arguments!r})", tmp_path)
    assert "kelpie" in loaded
    assert not loaded & {*HEAVY, "asyncio"}


def test_the_check_sees_what_is_loaded(tmp_path: Path) -> None:
    loaded = loaded_by("import kelpie.cli.app", tmp_path)
    assert "typer" in loaded
    of_servers = {"fastapi", "sqlalchemy", "uvicorn", "rich", "asyncio"}
    assert not loaded & of_servers, "talking to a server does not load one"


def test_the_server_process_loads_no_command_line_framework(tmp_path: Path) -> None:
    # The data directory is a file: the server is loaded, and ends at once.
    (tmp_path / "file").write_text("")
    code = "from kelpie.cli.main import run; assert run(['server', 'start', '--foreground']) == 1"
    loaded = loaded_by(code, tmp_path / "file")
    assert "fastapi" in loaded
    assert not loaded & {"typer", "alembic", "openai"}
    assert "markdown_it" not in loaded, "rich, which is hidden, would have brought it"
