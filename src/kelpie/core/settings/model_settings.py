"""The settings of the use of models: how long anything may take, how often it is tried, what is assumed, and limits."""

from dataclasses import dataclass

from kelpie.core.models.prices import parse_prices
from kelpie.core.models.provider_limits import parse_handles, parse_limits
from kelpie.core.settings.declaration import setting
from kelpie.core.settings.tool_settings import ToolSettings


@dataclass(frozen=True, slots=True)
class ModelSettings(ToolSettings):
    model_timeout_s: float = setting(
        "models.timeout_seconds",
        "How long one model call may take, retries included.",
        "KELPIE_MODEL_TIMEOUT_SECONDS",
        default=600.0,
        seconds=True,
    )
    model_attempts: int = setting(
        "models.attempts",
        "How often a model call is tried when the provider is busy or down.",
        "KELPIE_MODEL_ATTEMPTS",
        default=4,
        low=1,
        high=100,
    )
    model_connect_s: float = setting(
        "models.connect_seconds",
        "How long the connection to a provider may take to be made.",
        "KELPIE_MODEL_CONNECT_SECONDS",
        default=15.0,
        seconds=True,
    )
    model_first_byte_s: float = setting(
        "models.first_byte_seconds",
        "How long a streamed answer may take to begin; a reasoning model may think in silence first.",
        "KELPIE_MODEL_FIRST_BYTE_SECONDS",
        default=300.0,
        seconds=True,
    )
    model_silence_s: float = setting(
        "models.silence_seconds",
        "How long a streamed answer may pause.",
        "KELPIE_MODEL_SILENCE_SECONDS",
        default=300.0,
        seconds=True,
    )
    model_backoff_s: float = setting(
        "models.backoff_seconds",
        "Pause before the second attempt of a call; it doubles with each further one, up to 30 seconds.",
        "KELPIE_MODEL_BACKOFF_SECONDS",
        default=0.5,
        seconds=True,
    )
    model_retry_after_s: float = setting(
        "models.retry_after_seconds",
        "The longest pause that a provider may ask for with `Retry-After`; it is not waited longer than that.",
        "KELPIE_MODEL_RETRY_AFTER_SECONDS",
        default=60.0,
        seconds=True,
    )
    model_listing_s: float = setting(
        "models.listing_seconds",
        "How long finding out what a provider offers may take.",
        "KELPIE_MODEL_LISTING_SECONDS",
        default=20.0,
        seconds=True,
    )
    model_listing_fresh_s: float = setting(
        "models.listing_fresh_seconds",
        "How long a listing of models is used before the provider is asked again.",
        "KELPIE_MODEL_LISTING_FRESH_SECONDS",
        default=300.0,
        seconds=True,
    )
    model_listing_retry_s: float = setting(
        "models.listing_retry_seconds",
        "How soon a listing that failed, or that lacks a model, is asked for again.",
        "KELPIE_MODEL_LISTING_RETRY_SECONDS",
        default=15.0,
        seconds=True,
    )
    model_pull_s: float = setting(
        "models.pull_seconds",
        "How long fetching a local model may take.",
        "KELPIE_MODEL_PULL_SECONDS",
        default=43200.0,
        seconds=True,
    )
    context_window_unknown: int = setting(
        "models.context_window_unknown",
        "Context window of a model of which neither its server nor Kelpie knows one.",
        "KELPIE_CONTEXT_WINDOW_UNKNOWN",
        default=32_000,
        low=1000,
        high=100_000_000,
    )
    output_tokens: int = setting(
        "models.output_tokens",
        "Longest reply in tokens that agents ask for when they name none; less where the model gives less.",
        "KELPIE_OUTPUT_TOKENS",
        default=16_384,
        low=1,
        high=10_000_000,
    )
    pull_missing_models: bool = setting(
        "models.pull_missing",
        "Whether a local model that is missing is fetched when an agent names it.",
        "KELPIE_PULL_MISSING_MODELS",
        default=False,
    )
    model_fallbacks: tuple[str, ...] = setting(
        "models.fallbacks",
        "Models to ask when an agent's own fails, in order: `anthropic/claude-sonnet-4-5, ollama/qwen3:8b`.",
        "KELPIE_MODEL_FALLBACKS",
        default=(),
        check=parse_handles,
    )
    provider_limits: tuple[str, ...] = setting(
        "models.limits",
        "Limits per provider, shared by all agents: `openai: calls=8 requests=500 tokens=200000 dollars=5, ollama: "
        "calls=1` (calls at once, requests and tokens a minute, dollars a day).",
        "KELPIE_PROVIDER_LIMITS",
        default=(),
        check=parse_limits,
    )
    model_prices: tuple[str, ...] = setting(
        "models.prices",
        "Your own prices in dollars per million tokens, input/output, and if need be /cached input/cache write: "
        "`openai/gpt-4o=2.50/10.00/1.25, groq/*=0.10/0.20`. They go before the list prices that Kelpie knows.",
        "KELPIE_MODEL_PRICES",
        default=(),
        check=parse_prices,
    )
    provider_wait_s: float = setting(
        "models.wait_seconds",
        "How long a call may wait for the limits of its provider before it is answered with 429.",
        "KELPIE_PROVIDER_WAIT_SECONDS",
        default=30.0,
        seconds=True,
    )
