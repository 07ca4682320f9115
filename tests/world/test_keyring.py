"""Keys: a ciphertext is read at its place with its key only, and a key file is its owner's and never half a file."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from kelpie.core.encryption import SecretPlace
from kelpie.core.errors import ConfigurationError, SecretUnreadable
from kelpie.world.files.key_file import FileKeys, SettingKeys
from kelpie.world.keyring import Key, Keyring, key_of

ONE, TWO = Key(bytes(32)), Key(bytes([7] * 32))
PLACE = SecretPlace("agent_secrets", "agent-env-1", "value")


def test_a_text_is_read_back_and_is_not_in_its_ciphertext() -> None:
    for text in ("", "hush", "ünïcode \ud800 \n" * 500):
        token = ONE.seal(PLACE, b"seed", text)
        assert token.startswith(f"1:{ONE.id}:") and key_of(token) == ONE.id
        assert Keyring([TWO, ONE]).open(PLACE, token) == text
    assert "hush" not in ONE.seal(PLACE, b"seed", "hush")


@pytest.mark.parametrize(
    "place",
    [
        SecretPlace("sandbox_variables", "agent-env-1", "value"),
        SecretPlace("agent_secrets", "agent-env-2", "value"),
        SecretPlace("agent_secrets", "agent-env-1", "token"),
    ],
)
def test_a_ciphertext_that_was_moved_is_refused(place: SecretPlace) -> None:
    token = ONE.seal(PLACE, b"seed", "hush")
    with pytest.raises(SecretUnreadable, match="changed or moved"):
        Keyring([ONE]).open(place, token)


def test_a_changed_ciphertext_and_a_missing_key_are_refused_with_the_reason() -> None:
    token = ONE.seal(PLACE, b"seed", "hush")
    data = bytearray(base64.b64decode(token.split(":")[2]))
    for at in (0, 12, len(data) - 1):
        changed = bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(SecretUnreadable, match="changed or moved"):
            Keyring([ONE]).open(PLACE, f"1:{ONE.id}:{base64.b64encode(changed).decode()}")
    for broken in (f"1:{ONE.id}:", f"1:{ONE.id}:%%%", token[:-9], f"1:{ONE.id}:AAAA"):
        with pytest.raises(SecretUnreadable):
            Keyring([ONE]).open(PLACE, broken)
    with pytest.raises(SecretUnreadable, match=rf"key {ONE.id} is missing.*set the secret again"):
        Keyring([TWO]).open(PLACE, token)
    with pytest.raises(SecretUnreadable, match="missing"):
        Keyring([TWO]).open(PLACE, token.replace(ONE.id, TWO.id[::-1]))


def test_a_transaction_that_runs_again_with_another_text_uses_another_nonce() -> None:
    first, again, other = (ONE.seal(PLACE, b"seed", text) for text in ("a", "a", "b"))
    assert first == again and base64.b64decode(first.split(":")[2])[:12] != base64.b64decode(other.split(":")[2])[:12]


async def test_the_file_is_for_its_owner_and_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "encryption.key"
    ring = Keyring(store=FileKeys(path))
    await ring.load()
    assert ring.first is None, "nothing is made by reading"
    await ring.add(ONE)
    await ring.add(TWO)
    assert ring.ids == (TWO.id, ONE.id)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    path.chmod(0o644)
    other = Keyring(store=FileKeys(path))
    await other.load()
    assert other.ids == ring.ids and path.stat().st_mode & 0o777 == 0o600
    await other.remove([ONE.id])
    await ring.load()
    assert ring.ids == (TWO.id,)
    assert ring.find(ONE.id) is not None, "a reader that began before may still need it"
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_a_bad_file_or_setting_is_refused_and_no_key_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "encryption.key"
    good = base64.b64encode(bytes(range(32))).decode()
    for text in ("", "# nothing\n", "short\n", f"{good}\n{good[:20]}\n"):
        path.write_text(text)
        with pytest.raises(ConfigurationError) as error:
            await FileKeys(path).read()
        assert good[:12] not in str(error.value)
    with pytest.raises(ConfigurationError, match="KELPIE_ENCRYPTION_KEY: key 2 is not 32 bytes") as error:
        SettingKeys(f"{good},{good[:20]}")
    assert good[:12] not in str(error.value)
    assert await SettingKeys(f" {good} , {good}").read() == (bytes(range(32)),)


def test_a_key_costs_no_import_until_it_is_used() -> None:
    program = (
        "import sys\nimport kelpie.local\nfrom kelpie.world.keyring import Key\n"
        "Key(bytes(32)).canary\nprint('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
