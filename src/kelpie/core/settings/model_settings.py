"""Settings for the use of models: time-outs, retries, defaults and limits."""

from dataclasses import dataclass

from kelpie.core.models.prices import parse_prices
from kelpie.core.models.provider_limits import parse_handles, parse_limits
from kelpie.core.settings.declaration import setting


@dataclass(frozen=True)
class ModelSettings:
    """Settings of calls to models."""

    model_timeout_s: float = setting(
        "models.timeout_seconds",
        "Maximum duration of one model call, including retries.",
        "KELPIE_MODEL_TIMEOUT_SECONDS",
        default=600.0,
        seconds=True,
    )
    model_attempts: int = setting(
        "models.attempts",
        "Maximum number of attempts of a model call when the provider is busy or down.",
        "KELPIE_MODEL_ATTEMPTS",
        default=4,
        low=1,
        high=100,
    )
    model_connect_s: float = setting(
        "models.connect_seconds",
        "Maximum time to connect to a provider.",
        "KELPIE_MODEL_CONNECT_SECONDS",
        default=15.0,
        seconds=True,
    )
    model_first_byte_s: float = setting(
        "models.first_byte_seconds",
        "Maximum wait for the first part of a streamed answer; a reasoning model may think first.",
        "KELPIE_MODEL_FIRST_BYTE_SECONDS",
        default=300.0,
        seconds=True,
    )
    model_silence_s: float = setting(
        "models.silence_seconds",
        "Maximum pause within a streamed answer.",
        "KELPIE_MODEL_SILENCE_SECONDS",
        default=300.0,
        seconds=True,
    )
    model_backoff_s: float = setting(
        "models.backoff_seconds",
        "Pause before the second attempt of a call; it doubles with each further attempt, up to 30 seconds.",
        "KELPIE_MODEL_BACKOFF_SECONDS",
        default=0.5,
        seconds=True,
    )
    model_retry_after_s: float = setting(
        "models.retry_after_seconds",
        "Longest pause that Kelpie accepts from a provider's `Retry-After` header.",
        "KELPIE_MODEL_RETRY_AFTER_SECONDS",
        default=60.0,
        seconds=True,
    )
    model_listing_s: float = setting(
        "models.listing_seconds",
        "Maximum time to list the models of a provider.",
        "KELPIE_MODEL_LISTING_SECONDS",
        default=20.0,
        seconds=True,
    )
    model_listing_fresh_s: float = setting(
        "models.listing_fresh_seconds",
        "How long a list of models is cached before the provider is asked again.",
        "KELPIE_MODEL_LISTING_FRESH_SECONDS",
        default=300.0,
        seconds=True,
    )
    model_listing_retry_s: float = setting(
        "models.listing_retry_seconds",
        "Wait before Kelpie asks again for a list that failed or that lacks a model.",
        "KELPIE_MODEL_LISTING_RETRY_SECONDS",
        default=15.0,
        seconds=True,
    )
    model_pull_s: float = setting(
        "models.pull_seconds",
        "Maximum time to download a local model.",
        "KELPIE_MODEL_PULL_SECONDS",
        default=43200.0,
        seconds=True,
    )
    context_window_unknown: int = setting(
        "models.context_window_unknown",
        "Context window assumed for a model when neither its server nor Kelpie knows it.",
        "KELPIE_CONTEXT_WINDOW_UNKNOWN",
        default=32_000,
        low=1000,
        high=100_000_000,
    )
    output_tokens: int = setting(
        "models.output_tokens",
        "Default maximum length of a reply in tokens; lower if the model allows less.",
        "KELPIE_OUTPUT_TOKENS",
        default=16_384,
        low=1,
        high=10_000_000,
    )
    pull_missing_models: bool = setting(
        "models.pull_missing",
        "Whether Kelpie downloads a missing local model when an agent uses it.",
        "KELPIE_PULL_MISSING_MODELS",
        default=False,
    )
    discover_models: bool = setting(
        "models.discover",
        "Whether Kelpie looks for model servers on their default ports of this machine when no provider is set up.",
        "KELPIE_DISCOVER_MODELS",
        default=True,
    )
    model_fallbacks: tuple[str, ...] = setting(
        "models.fallbacks",
        "Fallback models, in order, for when an agent's own model fails: `anthropic/claude-sonnet-4-5, "
        "ollama/qwen3:8b`.",
        "KELPIE_MODEL_FALLBACKS",
        default=(),
        check=parse_handles,
    )
    provider_limits: tuple[str, ...] = setting(
        "models.limits",
        "Limits per provider, shared by all agents: `openai: calls=8 requests=500 tokens=200000 dollars=5, ollama: "
        "calls=1` (calls at once, requests and tokens a minute, dollars a day). `byok` sets those of each provider "
        "that an organization adds.",
        "KELPIE_PROVIDER_LIMITS",
        default=(),
        check=parse_limits,
    )
    model_prices: tuple[str, ...] = setting(
        "models.prices",
        "Your own prices in dollars per million tokens, as input/output, optionally followed by /cached input/cache "
        "write: `openai/gpt-4o=2.50/10.00/1.25, groq/*=0.10/0.20`. They override the list prices that Kelpie knows.",
        "KELPIE_MODEL_PRICES",
        default=(),
        check=parse_prices,
    )
    provider_wait_s: float = setting(
        "models.wait_seconds",
        "How long a call may wait for the limits of its provider before the request fails with 429.",
        "KELPIE_PROVIDER_WAIT_SECONDS",
        default=30.0,
        seconds=True,
    )
