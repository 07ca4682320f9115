"""The file that keeps what is kept of a password."""

import os
from pathlib import Path

import pytest

from kelpie.core.errors import ConfigurationError
from kelpie.world.files import password_file


def test_the_first_one_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    assert password_file.read(tmp_path) is None
    assert password_file.write_new(tmp_path, "scrypt$1$2")
    assert not password_file.write_new(tmp_path, "scrypt$3$4"), "one that is there is never replaced"
    assert password_file.read(tmp_path) == "scrypt$1$2"
    assert (tmp_path / password_file.NAME).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [password_file.NAME], "nothing is left beside it"


def test_a_place_that_takes_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="KELPIE_DATA_DIR"):
        password_file.write_new(tmp_path / "missing", "x")
    (tmp_path / password_file.NAME).mkdir()
    with pytest.raises(ConfigurationError, match="KELPIE_DATA_DIR"):
        password_file.read(tmp_path)


def test_it_is_bounded(tmp_path: Path) -> None:
    (tmp_path / password_file.NAME).write_bytes(os.urandom(password_file.BYTES_MAX * 2))
    assert len(password_file.read(tmp_path) or "") <= password_file.BYTES_MAX
