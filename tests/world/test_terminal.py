"""The interval of the terminal: what it calls is never called while it still runs."""

import signal

import pytest

from kelpie.world.terminal import every, typed_line


def test_a_call_that_takes_longer_than_the_interval_is_not_called_again_inside_itself() -> None:
    nested: list[int] = []
    running = 0

    def call() -> None:
        nonlocal running
        running += 1
        nested.append(running)
        if running == 1:
            signal.raise_signal(signal.SIGALRM)  # the next interval, while a stopped terminal holds up the first call
        running -= 1

    with every(3600, call):
        signal.raise_signal(signal.SIGALRM)
        signal.raise_signal(signal.SIGALRM)
    assert nested == [1, 1], "and the next interval after it calls again"


def test_a_call_that_fails_does_not_silence_the_next_ones() -> None:
    calls: list[str] = []

    def call() -> None:
        calls.append("called")
        if len(calls) == 1:
            raise KeyboardInterrupt

    with every(3600, call):
        try:
            signal.raise_signal(signal.SIGALRM)
        except KeyboardInterrupt:
            calls.append("interrupted")
        signal.raise_signal(signal.SIGALRM)
    assert calls == ["called", "interrupted", "called"]


def test_the_wait_for_a_typed_line_is_interrupted_so_that_ctrl_c_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(prompt: str) -> str:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        try:
            assert signal.sigtimedwait({signal.SIGALRM}, 60) is not None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return f"{prompt}hello"

    handler = signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr("builtins.input", typed)
    assert typed_line("you> ") == "you> hello"
    assert signal.getsignal(signal.SIGALRM) is handler and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
