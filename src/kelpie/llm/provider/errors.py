"""Errors of providers as ModelErrors: the kind, the provider's own message, and a hint for the user.

Keys never appear in these texts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from kelpie.core.errors import ConfigurationError, ModelError, ModelFault

DETAIL_CHARS_MAX = 4000
KEY_HIDDEN = "***"
KEY_CHARS_MIN = 6  # a shorter text is no key of a provider, and may be part of any word


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and key of a provider; hints name the variables. Raises ConfigurationError."""

    provider: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    key_variable: str = "OPENAI_API_KEY"
    url_variable: str = "OPENAI_BASE_URL"
    api_version: str | None = None  # Azure's dated interface; None is its undated one
    models: tuple[str, ...] = ()  # the models, if they cannot be listed
    window_unknown: int = 32_000  # context window of a model when it is unknown
    output_tokens: int = 16_384  # default limit on a reply
    public: bool = False  # true if only public addresses may be reached
    own: bool = False  # true for a provider that an organization added: no restart is needed to change it
    responses: bool | None = None  # true if reasoning models use OpenAI's responses; None: at OpenAI only
    speaks: str = "an OpenAI-compatible API; it usually ends in /v1"

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ConfigurationError(self.url_variable, f"'{self.base_url}' must begin with http:// or https://")
        try:
            host = httpx.URL(self.base_url).host
        except httpx.InvalidURL as error:
            raise ConfigurationError(self.url_variable, f"'{self.base_url}' is not a URL: {error}") from None
        if not host:
            raise ConfigurationError(self.url_variable, f"'{self.base_url}' contains no host")
        if self.api_key and not (self.api_key.isascii() and self.api_key.isprintable() and " " not in self.api_key):
            raise ConfigurationError(
                self.key_variable, "contains spaces or characters that are not valid in a key; copy it again"
            )

    def url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"

    def without_key(self, text: str) -> str:
        """A text of the provider, should it repeat the key."""
        return text.replace(self.api_key, KEY_HIDDEN) if self.api_key and len(self.api_key) >= KEY_CHARS_MIN else text

    @property
    def shown(self) -> str:
        """The base URL without a user name or password."""
        url = httpx.URL(self.base_url)
        return str(url.copy_with(username=None, password=None) if url.userinfo else url).rstrip("/")


def refused(at: Endpoint, status: int, body: bytes, *, model: str | None, retry_after_s: float | None) -> ModelError:
    """The error for an answer with a failing status."""
    told = _ErrorDetails.read(body)
    kind = _kind(status, told)
    return ModelError(
        kind,
        f"{at.provider} {_VERBS.get(kind, 'failed')} (HTTP {status}).",
        detail=at.without_key(told.text) or None,
        hint=_hint(kind, at, model, status),
        retry_after_s=retry_after_s,
    )


def complained(at: Endpoint, data: Mapping[str, Any], *, model: str | None) -> ModelError:
    """The error for an error object in an answer that began as a success."""
    told = _ErrorDetails.find(data)
    kind = _kind(told.status, told)
    return ModelError(
        kind,
        f"{at.provider} {_VERBS.get(kind, 'failed')} while answering.",
        detail=at.without_key(told.text) or None,
        hint=_hint(kind, at, model, told.status),
    )


def unreachable(at: Endpoint, url: str, error: httpx.HTTPError | httpx.InvalidURL) -> ModelError:
    """The error for a connection that could not be made or broke."""
    detail = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        kind, message = ModelFault.timeout, f"{at.provider} did not answer in time at {url}."
    elif isinstance(error, httpx.DecodingError):
        return unreadable(at, "its compression is broken", detail)
    elif isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol)):
        kind, message = ModelFault.bad_request, f"{url} is not a valid URL."
    elif isinstance(error, (httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError)):
        kind, message = ModelFault.connection, f"The connection to {at.provider} at {url} was lost."
    else:
        kind, message = ModelFault.connection, f"Cannot reach {at.provider} at {url}."
    return ModelError(kind, message, detail=detail, hint=_hint(kind, at, None, None))


def unreadable(at: Endpoint, why: str, text: str | bytes) -> ModelError:
    """The error for an answer that is not what it should be."""
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return ModelError(
        ModelFault.malformed,
        f"{at.provider} sent a reply that cannot be used: {why}.",
        detail=at.without_key(shown)[:DETAIL_CHARS_MAX] or None,
        hint=_hint(ModelFault.malformed, at, None, None),
    )


def cut_short(at: Endpoint) -> ModelError:
    """The error for a stream that ended before the model had finished."""
    return ModelError(
        ModelFault.connection,
        f"The stream ended early: {at.provider} closed it before the model had finished.",
        hint=_hint(ModelFault.connection, at, None, None),
    )


@dataclass(frozen=True, slots=True)
class _ErrorDetails:
    """A provider's report of its failure."""

    text: str
    code: str = ""
    status: int | None = None

    @classmethod
    def read(cls, body: bytes) -> "_ErrorDetails":
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError:
            return cls(body.decode("utf-8", "replace").strip()[:DETAIL_CHARS_MAX])
        found = cls.find(data) if isinstance(data, dict) else cls("")
        return found if found.text else cls(body.decode("utf-8", "replace")[:DETAIL_CHARS_MAX], found.code)

    @classmethod
    def find(cls, data: Mapping[str, Any]) -> "_ErrorDetails":
        error = data.get("error", data)
        if not isinstance(error, Mapping):
            return cls(str(error)[:DETAIL_CHARS_MAX])
        text = error.get("message") or error.get("detail") or ""
        details = error.get("details")
        code = error.get("code") or (details.get("error_code") if isinstance(details, Mapping) else None)
        return cls(
            (text if isinstance(text, str) else orjson.dumps(text).decode())[:DETAIL_CHARS_MAX],
            f"{code or ''} {error.get('type') or ''}".strip(),
            code if isinstance(code, int) else None,
        )


_OVERFLOW = (
    "context_length_exceeded",
    "exceed_context_size",
    "context length",
    "context window",
    "context size",
    "prompt is too long",
    "input is too long",
)
_BY_STATUS = {
    401: ModelFault.authentication,
    402: ModelFault.insufficient_credits,
    403: ModelFault.authentication,
    408: ModelFault.timeout,
    409: ModelFault.server,
    425: ModelFault.server,
    429: ModelFault.rate_limit,
    504: ModelFault.timeout,
    524: ModelFault.timeout,
}
_BY_WORD = (
    ("insufficient_quota", ModelFault.insufficient_credits),
    ("billing", ModelFault.insufficient_credits),
    ("spend_limit", ModelFault.insufficient_credits),
    ("rate_limit", ModelFault.rate_limit),
    ("api_key", ModelFault.authentication),
    ("authentication", ModelFault.authentication),
    ("permission", ModelFault.authentication),
    ("timeout", ModelFault.timeout),
    ("invalid_request", ModelFault.bad_request),
    ("not_found", ModelFault.bad_request),
)


def _kind(status: int | None, told: _ErrorDetails) -> ModelFault:
    if status in (None, 400, 413, 422, 500):
        said = f"{told.code} {told.text}".lower()
        if any(words in said for words in _OVERFLOW):
            return ModelFault.context_overflow
    code = told.code.lower()
    if status == 429 and any(word in code for word in ("insufficient_quota", "billing", "spend_limit")):
        return ModelFault.insufficient_credits  # waiting does not fill an account
    if status == 400 and "credit balance" in told.text.lower():
        return ModelFault.insufficient_credits
    if status is not None and status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is not None and status >= 300:
        return ModelFault.server if status >= 500 else ModelFault.bad_request
    return next((kind for word, kind in _BY_WORD if word in code), ModelFault.server)


_VERBS = {
    ModelFault.authentication: "refused the key",
    ModelFault.insufficient_credits: "reports that the account has no credit",
    ModelFault.rate_limit: "reports too many requests",
    ModelFault.bad_request: "refused the request",
    ModelFault.context_overflow: "reports that the conversation is too long for the model",
    ModelFault.timeout: "timed out",
}


def _hint(kind: ModelFault, at: Endpoint, model: str | None, status: int | None) -> str:
    if status is not None and 300 <= status < 400:
        return f"{at.url_variable} ({at.shown}) redirects to another URL; set it to that URL."
    if status == 404:
        which = f"'{model}' may not exist there; " if model else ""
        return (
            f"{which}GET /v1/models/ lists the models that do. Check also that {at.url_variable} ({at.shown}) "
            f"is {at.speaks}."
        )
    match kind:
        case ModelFault.authentication:
            then = "" if at.own else " and restart Kelpie"
            return f"Set {at.key_variable} to a key that is valid at {at.shown}{then}."
        case ModelFault.insufficient_credits:
            return f"Add credit to the account of {at.key_variable}, or give the agent another model."
        case ModelFault.rate_limit:
            return "Wait and try again, or ask the provider for a higher limit."
        case ModelFault.context_overflow | ModelFault.instructions_overflow:
            return "Lower the agent's context_window_limit so that it compacts earlier, or reset its messages."
        case ModelFault.connection:
            return f"Check that {at.url_variable} ({at.shown}) is correct and that the server there is running."
        case ModelFault.malformed:
            return f"Check that {at.url_variable} ({at.shown}) is {at.speaks}."
        case ModelFault.timeout:
            return "Try again, or raise KELPIE_MODEL_TIMEOUT_SECONDS if the model is just slow."
        case ModelFault.bad_request:
            return "The provider's message says what it did not accept; check the agent's model settings and tools."
        case ModelFault.server:
            return "The provider had an internal error; try again later."
