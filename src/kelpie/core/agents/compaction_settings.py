"""Compaction of a history that no longer fits its model: an agent's settings for it, and the figures of one compaction.

The settings are stored by the wire's names; `parse` is the one function that turns such a mapping into a value.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from kelpie.core.errors import InvalidInput

CLIP_CHARS_DEFAULT = 50_000
SHARE_DEFAULT = 0.3
PROMPT_CHARS_MAX = 100_000


class Mode(StrEnum):
    """The part of the context to summarise (a share or all) and the model that does it (its own or the agent's)."""

    sliding_window = "sliding_window"
    all = "all"
    self_compact_sliding_window = "self_compact_sliding_window"
    self_compact_all = "self_compact_all"

    @property
    def slides(self) -> bool:
        return self in (Mode.sliding_window, Mode.self_compact_sliding_window)

    @property
    def by_itself(self) -> bool:
        return self in (Mode.self_compact_all, Mode.self_compact_sliding_window)


class Trigger(StrEnum):
    """Cause of a compaction."""

    before_step = "context_window_exceeded"
    after_step = "post_step_context_check"
    asked_for = "requested"


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Compaction settings of an agent. `share` is the least part that is summarised, unless all of it is."""

    mode: Mode = Mode.sliding_window
    model: str | None = None
    model_settings: Mapping[str, Any] | None = None
    prompt: str | None = None
    acknowledged: bool = False
    clip_chars: int | None = CLIP_CHARS_DEFAULT
    share: float = SHARE_DEFAULT


@dataclass(frozen=True, slots=True)
class CompactionStats:
    """Figures of one compaction. Tokens are the provider's count where it gave one, else estimated."""

    trigger: str
    context_tokens_before: int
    context_tokens_after: int
    context_window: int
    messages_count_before: int
    messages_count_after: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def parse(given: Mapping[str, Any]) -> CompactionSettings:
    """Settings from their stored form, with defaults for what is missing. Raises InvalidInput naming the field."""
    clip = given.get("clip_chars", CLIP_CHARS_DEFAULT)
    return CompactionSettings(
        mode=_mode(given.get("mode")),
        model=_handle(given.get("model")),
        model_settings=_mapping(given.get("model_settings")),
        prompt=_prompt(given.get("prompt")),
        acknowledged=_flag(given.get("prompt_acknowledgement")),
        clip_chars=_clip(clip),
        share=_share(given.get("sliding_window_percentage")),
    )


def _wrong(field: str, remedy: str) -> InvalidInput:
    return InvalidInput(f"compaction_settings.{field}", remedy)


def _mode(value: Any) -> Mode:
    if value is None:
        return Mode.sliding_window
    if value not in list(Mode):
        raise _wrong("mode", f"use one of {', '.join(Mode)}")
    return Mode(value)


def _handle(value: Any) -> str | None:
    if value is None:
        return None
    provider, _, name = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not (provider and name):
        raise _wrong("model", "use a handle of the form provider/model, such as openai/gpt-5-mini")
    return value


def _mapping(value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise _wrong("model_settings", "must be an object; omit it for the default")
    return value  # pyright: ignore[reportUnknownVariableType]


def _prompt(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > PROMPT_CHARS_MAX:
        raise _wrong("prompt", f"must be a text of at most {PROMPT_CHARS_MAX} characters")
    return value or None


def _flag(value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise _wrong("prompt_acknowledgement", "must be true or false")
    return bool(value)


def _clip(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong("clip_chars", "must be a positive number of characters, or null for no separate limit")
    return value


def _share(value: Any) -> float:
    if value is None:
        return SHARE_DEFAULT
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise _wrong("sliding_window_percentage", "must be a number between 0 and 1")
    return float(value)
