"""The text of keys and tokens."""

import random

import pytest

from kelpie.accounts.credentials import Credential, fresh, has_credential_format, parse
from kelpie.core.ids import Id, KeyId, TokenId
from kelpie.observe.redaction import hide_secrets
from kelpie.world.ids import RandomIds, SeededIds


@pytest.mark.parametrize("kind", [KeyId, TokenId])
def test_a_credential_is_read_back_from_its_text(kind: type[Id]) -> None:
    made = fresh(kind, RandomIds())
    again = parse(str(made))
    assert again == made and isinstance(again.id, kind)
    assert has_credential_format(str(made))


def test_what_is_stored_proves_the_secret_and_does_not_hold_it() -> None:
    made = fresh(KeyId, RandomIds())
    assert made.proves(made.digest)
    assert made.secret not in made.digest and made.digest not in str(made)
    assert not Credential(made.id, made.secret[:-1] + "_").proves(made.digest) or made.secret.endswith("_")
    assert not made.proves(None), "no row proves nothing"
    assert not Credential(made.id, "").proves(None), "not even the empty secret"


def test_secrets_are_never_the_same() -> None:
    ids = RandomIds()
    assert len({fresh(KeyId, ids).secret for _ in range(100)}) == 100
    one, other = (fresh(KeyId, SeededIds(random.Random(seed))) for seed in (1, 2))
    assert one != other


def test_a_credential_in_a_path_does_not_reach_the_log() -> None:
    made = fresh(TokenId, RandomIds())
    logged = hide_secrets(f"DELETE /v1/client-side-access-tokens/{made} 200")
    assert made.secret not in logged and logged.endswith(" 200")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "kelpie-key_",
        "kelpie-key_00000000000040008000000000000000_short",
        "kelpie-door_00000000000040008000000000000000_" + "a" * 43,
        "kelpie-key_0000000000004000800000000000000_" + "a" * 43,
        "kelpie-key_00000000000040008000000000000000_" + "a" * 43 + "\n",
        "kelpie-key_00000000000040008000000000000000_" + "é" * 43,
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert parse(text) is None
