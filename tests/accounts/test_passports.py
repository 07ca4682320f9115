"""Passports: good for one call, for a while, and for nothing else."""

import pytest

from kelpie.accounts import passports as module
from kelpie.accounts.credentials import has_credential_format
from kelpie.accounts.passports import Passports
from kelpie.core.access.passports import Passport
from kelpie.core.errors import ToolError
from kelpie.core.ids import DEFAULT_ORGANIZATION, DEFAULT_USER, AgentId
from kelpie.world.ids import RandomIds

AGENT = AgentId("agent-00000000-0000-4000-8000-000000000001")


class Clock:
    def __init__(self) -> None:
        self.at = 1_000

    def now(self) -> int:
        return self.at


def _passport(until: int) -> Passport:
    return Passport(AGENT, DEFAULT_ORGANIZATION, DEFAULT_USER, until)


def test_a_passport_is_known_while_its_call_runs_and_forgotten_afterwards() -> None:
    passports = Passports(RandomIds(), Clock())
    with passports.issued(_passport(2_000)) as text:
        assert passports.find(text) == _passport(2_000)
        assert passports.find(text + "x") is None
        assert not has_credential_format(text), "the gate for everybody else does not know it"
    assert passports.find(text) is None
    assert len(passports) == 0


def test_a_passport_ends_with_its_time() -> None:
    clock = Clock()
    passports = Passports(RandomIds(), clock)
    with passports.issued(_passport(2_000)) as text:
        clock.at = 2_000
        assert passports.find(text) is None


def test_every_call_has_a_passport_of_its_own_also_when_one_breaks() -> None:
    passports = Passports(RandomIds(), Clock())
    with passports.issued(_passport(2_000)) as one, passports.issued(_passport(3_000)) as two:
        assert one != two
        assert passports.find(two) == _passport(3_000)
    with pytest.raises(RuntimeError), passports.issued(_passport(2_000)):
        raise RuntimeError
    assert len(passports) == 0


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PASSPORTS_MAX", 1)
    passports = Passports(RandomIds(), Clock())
    with passports.issued(_passport(2_000)), pytest.raises(ToolError, match="are running already"):
        passports.issued(_passport(2_000)).__enter__()
