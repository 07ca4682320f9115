"""Every limit at its border: the last value that is permitted, and the first that is not."""

from dataclasses import replace
from datetime import datetime

import pytest

from kelpie.core.errors import InvalidInput, QuotaExceeded
from kelpie.core.ids import DEFAULT_ORGANIZATION, OrganizationId
from kelpie.core.permissions.budgets import Budget, Period, SpentAmount
from kelpie.core.permissions.organization_limits import (
    LIMIT_MAX,
    MEGABYTE,
    NO_LIMITS,
    OrganizationLimits,
    OrganizationUsage,
    check_growth,
    check_room,
    checked_limits,
    effective,
)
from kelpie.core.permissions.policies import EffectivePermissions
from kelpie.core.permissions.quotas import UNBOUNDED, Quota, QuotaUse, hour_after, hour_of
from kelpie.core.permissions.tool_permissions import PATTERNS_MAX, Capability, Subject, ToolKind, check_patterns
from kelpie.core.time import MICROS_PER_SECOND, from_datetime
from kelpie.core.tools.confinement import Confinement

HOUR = 3600 * MICROS_PER_SECOND
OURS = OrganizationId("org-00000000-0000-4000-8000-000000000001")
TOOL = Subject("outside", ToolKind.custom, (Capability.code,))
HARMLESS = Subject("send_message", ToolKind.builtin)


@pytest.mark.parametrize(
    ("spent", "budget", "used_up"),
    [
        (SpentAmount(tokens=99), Budget(tokens=100), False),
        (SpentAmount(tokens=100), Budget(tokens=100), True),
        (SpentAmount(tokens=101), Budget(tokens=100), True),
        (SpentAmount(micros=99, tokens=10**9), Budget(micros=100), False),
        (SpentAmount(micros=100), Budget(micros=100), True),
        (SpentAmount(micros=99, tokens=100), Budget(micros=100, tokens=100), True),
        (SpentAmount(micros=100, tokens=99), Budget(micros=100, tokens=100), True),
        (SpentAmount(micros=99, tokens=99), Budget(micros=100, tokens=100), False),
        (SpentAmount(), Budget(tokens=0), True),
        (SpentAmount(micros=10**9, tokens=10**9), Budget(), False),
    ],
)
def test_a_budget_is_used_up_from_its_amount_on(spent: SpentAmount, budget: Budget, used_up: bool) -> None:
    assert spent.exceeds(budget) == used_up


def moment(text: str) -> int:
    return from_datetime(datetime.fromisoformat(f"{text}+00:00"))


@pytest.mark.parametrize(
    ("period", "now", "begins", "ends"),
    [
        (Period.hour, "2026-03-01T10:00:00", "2026-03-01T10:00:00", "2026-03-01T11:00:00"),
        (Period.hour, "2026-03-01T10:59:59.999999", "2026-03-01T10:00:00", "2026-03-01T11:00:00"),
        (Period.day, "2026-03-01T23:59:59.999999", "2026-03-01T00:00:00", "2026-03-02T00:00:00"),
        (Period.day, "2026-03-02T00:00:00", "2026-03-02T00:00:00", "2026-03-03T00:00:00"),
        (Period.month, "2026-02-28T23:59:59.999999", "2026-02-01T00:00:00", "2026-03-01T00:00:00"),
        (Period.month, "2026-03-01T00:00:00", "2026-03-01T00:00:00", "2026-04-01T00:00:00"),
        (Period.month, "2026-12-31T00:00:00", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
    ],
)
def test_a_period_holds_its_first_and_its_last_moment(period: Period, now: str, begins: str, ends: str) -> None:
    budget = Budget(tokens=1, period=period)
    assert (budget.begins(moment(now)), budget.ends(moment(now))) == (moment(begins), moment(ends))


def test_an_hour_begins_with_its_first_moment() -> None:
    assert [hour_of(now) for now in (HOUR - 1, HOUR, 2 * HOUR - 1)] == [0, HOUR, HOUR]
    assert [hour_after(now) for now in (HOUR - 1, HOUR)] == [HOUR, 2 * HOUR]
    assert Budget(tokens=1).begins(HOUR) == 0 and Budget(tokens=1).ends(HOUR) is None


@pytest.mark.parametrize(
    ("quota", "used", "before", "refused"),
    [
        (Quota(tool_calls=3), QuotaUse(tool_calls=2), 0, False),
        (Quota(tool_calls=3), QuotaUse(tool_calls=3), 0, True),
        (Quota(tool_calls=3), QuotaUse(tool_calls=1), 1, False),
        (Quota(tool_calls=3), QuotaUse(tool_calls=1), 2, True),
        (Quota(tool_calls=0), QuotaUse(), 0, True),
        (Quota(cpu_us=100), QuotaUse(cpu_us=99), 5, False),
        (Quota(cpu_us=100), QuotaUse(cpu_us=100), 0, True),
        (Quota(tokens=1), QuotaUse(tool_calls=99), 9, False),
        (UNBOUNDED, QuotaUse(tool_calls=10**9, cpu_us=10**12), 9, False),
    ],
)
def test_calls_are_refused_from_the_limit_on(quota: Quota, used: QuotaUse, before: int, refused: bool) -> None:
    held = EffectivePermissions(quota=quota, used=used)
    assert (held.refusal(TOOL, before) is not None) == refused
    assert held.refusal(HARMLESS, before) is None


@pytest.mark.parametrize("name", Quota.__slots__)
def test_the_tighter_of_two_limits_holds(name: str) -> None:
    loose, tight = Quota(**{name: 7}), Quota(**{name: 5})
    assert getattr(loose.within(tight), name) == getattr(tight.within(loose), name) == 5
    assert getattr(UNBOUNDED.within(tight), name) == getattr(tight.within(UNBOUNDED), name) == 5
    assert loose.within(UNBOUNDED) == loose


@pytest.mark.parametrize("name", ["memory_bytes", "wall_s", "cpu_share", "processes", "output_bytes", "scratch_bytes"])
def test_a_limit_for_one_call_only_tightens(name: str) -> None:
    given = Confinement()
    asked = getattr(given, name)
    assert getattr(Quota(**{name: asked / 2}).confined(given), name) == asked / 2
    assert Quota(**{name: asked}).confined(given) is given
    assert Quota(**{name: asked * 2}).confined(given) is given
    assert Quota(return_chars=5).returned(9) == 5 and Quota(return_chars=9).returned(5) == 5


@pytest.mark.parametrize(
    ("limits", "before", "after", "refused"),
    [
        (OrganizationLimits(agents=3), OrganizationUsage(agents=2), OrganizationUsage(agents=3), None),
        (OrganizationLimits(agents=3), OrganizationUsage(agents=3), OrganizationUsage(agents=4), "agents"),
        (OrganizationLimits(agents=3), OrganizationUsage(agents=9), OrganizationUsage(agents=8), None),
        (OrganizationLimits(agents=3), OrganizationUsage(agents=9), OrganizationUsage(agents=9), None),
        (OrganizationLimits(messages=3), OrganizationUsage(messages=2), OrganizationUsage(messages=3), None),
        (OrganizationLimits(messages=3), OrganizationUsage(messages=3), OrganizationUsage(messages=4), "messages"),
        (OrganizationLimits(stored_mb=1), OrganizationUsage(bytes=0), OrganizationUsage(bytes=MEGABYTE), None),
        (
            OrganizationLimits(stored_mb=1),
            OrganizationUsage(bytes=MEGABYTE),
            OrganizationUsage(bytes=MEGABYTE + 1),
            "stored_mb",
        ),
        (NO_LIMITS, OrganizationUsage(), OrganizationUsage(10**9, 10**9, 10**15), None),
    ],
)
def test_an_organization_grows_up_to_its_limit(
    limits: OrganizationLimits, before: OrganizationUsage, after: OrganizationUsage, refused: str | None
) -> None:
    if refused is None:
        check_growth(limits, before, after)
    else:
        with pytest.raises(QuotaExceeded) as told:
            check_growth(limits, before, after)
        assert f"'{refused}'" in str(told.value)


@pytest.mark.parametrize(
    ("limits", "used", "room"),
    [
        (OrganizationLimits(messages=3), OrganizationUsage(messages=2), True),
        (OrganizationLimits(messages=3), OrganizationUsage(messages=3), False),
        (OrganizationLimits(stored_mb=1), OrganizationUsage(bytes=MEGABYTE - 1), True),
        (OrganizationLimits(stored_mb=1), OrganizationUsage(bytes=MEGABYTE), False),
        (OrganizationLimits(agents=1), OrganizationUsage(agents=9), True),
    ],
)
def test_there_is_room_for_a_message_below_the_limit(
    limits: OrganizationLimits, used: OrganizationUsage, room: bool
) -> None:
    if room:
        check_room(limits, used)
    else:
        with pytest.raises(QuotaExceeded):
            check_room(limits, used)


def test_limits_of_the_server_hold_for_every_organization_but_the_operators() -> None:
    server = OrganizationLimits(agents=5, messages=7)
    assert effective(OURS, server, None) == server
    assert effective(DEFAULT_ORGANIZATION, server, None) == NO_LIMITS
    assert effective(OURS, server, {"agents": 0}) == replace(server, agents=0)
    assert effective(DEFAULT_ORGANIZATION, server, {"agents": 2}) == OrganizationLimits(agents=2)


@pytest.mark.parametrize(
    ("value", "fits"), [(0, True), (LIMIT_MAX, True), (LIMIT_MAX + 1, False), (-1, False), (True, False), (1.0, False)]
)
def test_a_limit_is_a_whole_number_within_bounds(value: object, fits: bool) -> None:
    if fits:
        assert checked_limits({"agents": value, "messages": None}) == {"agents": value}
    else:
        with pytest.raises(InvalidInput):
            checked_limits({"agents": value})
    with pytest.raises(InvalidInput, match="not a limit"):
        checked_limits({"cats": 1})


def test_a_list_has_so_many_patterns_and_no_more() -> None:
    patterns = [f"tool_{number}" for number in range(PATTERNS_MAX)]
    assert check_patterns("deny", patterns) == tuple(patterns)
    with pytest.raises(InvalidInput, match=str(PATTERNS_MAX)):
        check_patterns("deny", [*patterns, "one_more"])


@pytest.mark.parametrize(
    ("quota", "counts", "open_"),
    [
        (UNBOUNDED, False, True),
        (Quota(tool_calls=0), True, False),
        (Quota(cpu_us=1), True, False),
        (Quota(tokens=1), False, False),
        (Quota(memory_bytes=1, wall_s=1.0, return_chars=1), False, True),
    ],
)
def test_whatever_an_hour_limits_is_counted(quota: Quota, counts: bool, open_: bool) -> None:
    assert (quota.counts_calls, quota.open) == (counts, open_)
