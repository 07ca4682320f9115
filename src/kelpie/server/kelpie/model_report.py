"""The server's report on its providers and models: the ones on offer, the hidden ones with the reason, and what to set
up.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kelpie.core.errors import ModelError
from kelpie.server.letta.models.shape import ModelFacts, abilities


class _Hidden(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def reason(self) -> str: ...


class _Report(Protocol):
    """One provider; the types of package `llm` stay out of the server."""

    @property
    def provider(self) -> str: ...
    @property
    def server(self) -> str | None: ...
    @property
    def models(self) -> Sequence[ModelFacts]: ...
    @property
    def hidden(self) -> Sequence[_Hidden]: ...
    @property
    def error(self) -> ModelError | None: ...
    @property
    def endpoint(self) -> str | None: ...
    @property
    def own(self) -> bool: ...
    @property
    def setting(self) -> str | None: ...


class _FoundServer(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def url(self) -> str: ...


class _DefaultModel(Protocol):
    @property
    def handle(self) -> str: ...
    @property
    def reason(self) -> str | None: ...


def report_shape(
    reports: Sequence[_Report], absent: Mapping[str, str], nearby: Sequence[tuple[_FoundServer, str]]
) -> dict[str, Any]:
    """Providers with their models; those that are not configured, with the settings to set; and model servers on this
    machine that are not in use, with the setting that enables each."""
    return {
        "providers": [_provider(report) for report in reports],
        "absent": [{"name": name, "remedy": remedy} for name, remedy in absent.items()],
        "nearby": [{"server": each.kind, "url": each.url, "setting": setting} for each, setting in nearby],
    }


def default_shape(default: _DefaultModel | ModelError) -> dict[str, Any]:
    """The default model of new agents, or why there is none now."""
    if isinstance(default, ModelError):
        return {"handle": None, "reason": " ".join(filter(None, (default.message, default.hint)))}
    return {"handle": default.handle, "reason": default.reason}


def _provider(report: _Report) -> dict[str, Any]:
    error = report.error
    return {
        "name": report.provider,
        "server": report.server,
        "endpoint": report.endpoint,
        "category": "byok" if report.own else "base",
        "found": report.setting is not None,
        "setting": report.setting,
        "error": error.message if error else None,
        "detail": error.detail if error else None,
        "hint": error.hint if error else None,
        "models": [_model(model) for model in report.models],
        "hidden": [{"name": hidden.name, "reason": hidden.reason} for hidden in report.hidden],
    }


def _model(model: ModelFacts) -> dict[str, Any]:
    facts = {"handle": model.handle, "context_window": model.context_window, "max_tokens": model.max_tokens}
    return facts | abilities(model)
