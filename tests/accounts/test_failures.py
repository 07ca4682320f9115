"""Failed logins: a few are free, then an address has to wait, and nobody else has to."""

from kelpie.accounts.login_failures import ADDRESSES_MAX, FAILURES_MAX, REFILL_S, LoginFailures


def test_after_so_many_failures_an_address_waits_and_gets_one_guess_at_a_time() -> None:
    failures = LoginFailures()
    for _ in range(FAILURES_MAX):
        assert failures.wait_s("10.0.0.1", 100.0) == 0.0
        failures.note("10.0.0.1", 100.0)
    wait_s = failures.wait_s("10.0.0.1", 100.0)
    assert 0 < wait_s <= REFILL_S
    assert failures.wait_s("10.0.0.1", 100.0 + wait_s) == 0.0
    failures.note("10.0.0.1", 100.0 + wait_s)
    assert failures.wait_s("10.0.0.1", 100.0 + wait_s) > 0.0
    assert failures.wait_s("10.0.0.2", 100.0) == 0.0, "another address is another matter"
    assert failures.wait_s("10.0.0.1", 100.0 + FAILURES_MAX * REFILL_S * 2) == 0.0


def test_a_network_of_ipv6_addresses_counts_as_one_and_a_mapped_address_as_itself() -> None:
    failures = LoginFailures(failures_max=1)
    failures.note("2001:db8:1:2::1", 0.0)
    assert failures.wait_s("2001:db8:1:2:ffff::9", 0.0) > 0
    assert failures.wait_s("2001:db8:1:3::1", 0.0) == 0
    failures.note("::ffff:10.0.0.7", 0.0)
    assert failures.wait_s("10.0.0.7", 0.0) > 0


def test_the_table_is_bounded() -> None:
    failures = LoginFailures()
    for number in range(ADDRESSES_MAX + 100):
        failures.note(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", float(number))
    assert len(failures) == ADDRESSES_MAX
    failures.note("not an address", 0.0)
    assert failures.wait_s("not an address", 0.0) == 0.0


def test_who_failed_again_is_kept_when_the_table_is_full() -> None:
    failures = LoginFailures(failures_max=1, refill_s=1_000_000.0)
    failures.note("10.9.9.9", 0.0)
    failures.note("10.9.9.8", 0.0)
    failures.note("10.9.9.9", 1.0)
    for number in range(ADDRESSES_MAX - 1):
        failures.note(f"11.{number >> 16}.{number >> 8 & 255}.{number & 255}", 2.0)
    assert failures.wait_s("10.9.9.9", 3.0) > 0
    assert failures.wait_s("10.9.9.8", 3.0) == 0, "it has been quiet for the longest"


def test_every_guess_costs_the_same_time_and_old_ones_are_forgiven() -> None:
    failures = LoginFailures(failures_max=3, refill_s=6.0)
    for _ in range(3):
        failures.note("10.0.0.1", 100.0)
    assert failures.wait_s("10.0.0.1", 100.0) == 6.0
    assert failures.wait_s("10.0.0.1", 105.0) == 1.0
    assert failures.wait_s("10.0.0.1", 106.0) == 0.0
    failures.note("10.0.0.1", 106.0)
    assert failures.wait_s("10.0.0.1", 106.0) == 6.0
    for _ in range(2):
        failures.note("10.0.0.1", 1000.0)
        assert failures.wait_s("10.0.0.1", 1000.0) == 0.0, "long ago nothing was wrong"
    failures.note("10.0.0.1", 1000.0)
    assert failures.wait_s("10.0.0.1", 1000.0) == 6.0
