"""Settings of compaction: what is given wrongly is refused by name, what is left out has a default."""

import pytest

from kelpie.core.agents.compaction_settings import CompactionSettings, Mode, parse
from kelpie.core.errors import InvalidInput


def test_nothing_given_is_the_default() -> None:
    assert parse({}) == CompactionSettings()


def test_everything_given_is_kept() -> None:
    given = {
        "mode": "self_compact_all",
        "model": "openai/gpt-5-mini",
        "model_settings": {"temperature": 0},
        "prompt": "Short.",
        "prompt_acknowledgement": True,
        "clip_chars": None,
        "sliding_window_percentage": 1,
    }
    assert parse(given) == CompactionSettings(
        Mode.self_compact_all, "openai/gpt-5-mini", {"temperature": 0}, "Short.", True, None, 1.0
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mode", "most"), ("mode", 3), ("model", "gpt"), ("model", 7), ("model_settings", "hot"), ("prompt", 1),
        ("prompt", "x" * 100_001), ("prompt_acknowledgement", "yes"), ("clip_chars", 0), ("clip_chars", True),
        ("clip_chars", 1.5), ("sliding_window_percentage", 1.1), ("sliding_window_percentage", -0.1),
        ("sliding_window_percentage", float("nan")), ("sliding_window_percentage", "0.3"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse({field: value})
    assert refused.value.field == f"compaction_settings.{field}"
