"""Which kelpie.toml counts, and what is said when it cannot be read."""

import subprocess
import sys
from pathlib import Path

import pytest

from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.settings import Settings
from kelpie.world.files.settings_file import load


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def write(directory: Path, port: int, name: str = "kelpie.toml") -> Path:
    path = directory / name
    path.write_text(f"[server]\nport = {port}\n")
    return path


def env(here: Path) -> dict[str, str]:
    return {"KELPIE_DATA_DIR": str(here.parent / "data")}


def test_without_a_file_there_are_the_defaults(here: Path) -> None:
    found = load(env={"KELPIE_DATA_DIR": str(here / "none")})
    assert found.file is None
    assert found.settings.port == Settings().port


def test_the_named_file_counts_before_the_current_directory_before_the_data_directory(here: Path) -> None:
    write(here.parent / "data", 1)
    assert load(env=env(here)).settings.port == 1
    write(here, 2)
    assert load(env=env(here)).settings.port == 2
    by_variable = write(here.parent, 3, "variable.toml")
    named = env(here) | {"KELPIE_CONFIG": str(by_variable)}
    assert load(env=named).settings.port == 3
    by_option = write(here.parent, 4, "option.toml")
    found = load(config=str(by_option), env=named)
    assert (found.settings.port, found.file) == (4, str(by_option))
    assert str(found.origins["port"]) == f"{by_option} line 2, server.port"


def test_only_one_file_is_read(here: Path) -> None:
    write(here, 2)
    (here.parent / "data" / "kelpie.toml").write_text('[server]\nlog_level = "debug"\n')
    assert load(env=env(here)).settings.log_level == "info"


def test_the_data_directory_of_an_option_is_looked_into(here: Path) -> None:
    write(here.parent / "data", 5)
    assert load({"data_dir": ("--data-dir", str(here.parent / "data"))}, env={}).settings.port == 5


@pytest.mark.parametrize(("config", "variable"), [("missing.toml", ""), (None, "missing.toml"), (".", "")])
def test_a_named_file_that_is_none_is_refused(here: Path, config: str | None, variable: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(config=config, env={"KELPIE_CONFIG": variable})
    assert error.value.setting == ("--config" if config else "KELPIE_CONFIG")
    assert str(here) in str(error.value)


def test_a_relative_data_directory_is_meant_from_the_file(here: Path) -> None:
    (here / "kelpie.toml").write_text('[server]\ndata_dir = "store"\n')
    assert load(env={}).settings.data_dir == str(here / "store")
    (here / "kelpie.toml").write_text('[server]\ndata_dir = "/srv/kelpie"\n')
    assert load(env={}).settings.data_dir == "/srv/kelpie"


def test_a_file_that_is_not_text_or_too_large_is_refused(here: Path) -> None:
    path = here / "kelpie.toml"
    path.write_bytes(b"[server]\n\nhost = '\xff'\n")
    with pytest.raises(ConfigurationError, match=r"kelpie.toml line 3: this is not UTF-8"):
        load(env={})
    path.write_bytes(b"#" * 1024 * 1024)
    with pytest.raises(ConfigurationError, match="larger than"):
        load(env={})


def test_without_a_file_no_toml_reader_is_loaded(here: Path) -> None:
    code = "from kelpie.world.files.settings_file import load; load(); import sys; print('tomllib' in sys.modules)"
    for expected in ("False", "True"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=here,
            env=env(here),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.strip() == expected
        write(here, 1)
