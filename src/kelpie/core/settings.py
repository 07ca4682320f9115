"""Everything an operator can set: one table with names, default, bounds and meaning, and the order of who is heard.

A flag goes before a variable of the environment, that before kelpie.toml, that before the default. A wrong value is
refused with the place it stands at. Reading flags, environment and file is the caller's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from kelpie.core.errors import ConfigurationError
from kelpie.core.origins import Given, Origin, decide
from kelpie.core.server_settings import ServerSettings
from kelpie.core.setting import Setting, setting, specs

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Settings(ServerSettings):
    """All settings: those of the server and its agents, and here those of models and their providers."""

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
    openai_api_key: str | None = setting(
        "providers.openai.api_key",
        "Key for the OpenAI API or a compatible server; with it, the models of `openai/` are offered.",
        "OPENAI_API_KEY",
        secret=True,
    )
    openai_base_url: str = setting(
        "providers.openai.base_url",
        "Address of a server that speaks OpenAI's protocol.",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
        default="https://api.openai.com/v1",
    )
    anthropic_api_key: str | None = setting(
        "providers.anthropic.api_key",
        "Key for Anthropic; with it, the models of `anthropic/` are offered.",
        "ANTHROPIC_API_KEY",
        secret=True,
    )
    anthropic_base_url: str = setting(
        "providers.anthropic.base_url",
        "Address of a server that speaks Anthropic's protocol.",
        "ANTHROPIC_BASE_URL",
        default="https://api.anthropic.com",
    )
    azure_api_key: str | None = setting(
        "providers.azure.api_key",
        "Key for Azure OpenAI; with it and the address, the models of `azure/` are offered.",
        "AZURE_API_KEY",
        secret=True,
    )
    azure_base_url: str | None = setting(
        "providers.azure.base_url",
        "Address of the Azure resource, such as `https://name.openai.azure.com`.",
        "AZURE_BASE_URL",
    )
    azure_api_version: str = setting(
        "providers.azure.api_version", "Version of Azure's API.", "AZURE_API_VERSION", default="2024-09-01-preview"
    )
    azure_deployments: tuple[str, ...] = setting(
        "providers.azure.deployments",
        "Azure deployments to offer, as `name` or `name=model`, where the resource does not list them.",
        "AZURE_DEPLOYMENTS",
        default=(),
    )
    groq_api_key: str | None = setting(
        "providers.groq.api_key",
        "Key for Groq; with it, the models of `groq/` are offered.",
        "GROQ_API_KEY",
        secret=True,
    )
    together_api_key: str | None = setting(
        "providers.together.api_key",
        "Key for Together; with it, the models of `together/` are offered.",
        "TOGETHER_API_KEY",
        secret=True,
    )
    deepseek_api_key: str | None = setting(
        "providers.deepseek.api_key",
        "Key for DeepSeek; with it, the models of `deepseek/` are offered.",
        "DEEPSEEK_API_KEY",
        secret=True,
    )
    xai_api_key: str | None = setting(
        "providers.xai.api_key",
        "Key for xAI; with it, the models of `xai/` are offered.",
        "XAI_API_KEY",
        secret=True,
    )
    openrouter_api_key: str | None = setting(
        "providers.openrouter.api_key",
        "Key for OpenRouter; with it, the models of `openrouter/` are offered.",
        "OPENROUTER_API_KEY",
        secret=True,
    )
    ollama_base_url: str | None = setting(
        "providers.ollama.base_url",
        "Address of an Ollama server, such as `http://127.0.0.1:11434`.",
        "OLLAMA_BASE_URL",
    )
    lmstudio_base_url: str | None = setting(
        "providers.lmstudio.base_url",
        "Address of LM Studio, such as `http://127.0.0.1:1234`.",
        "LMSTUDIO_BASE_URL",
    )
    vllm_base_url: str | None = setting(
        "providers.vllm.base_url",
        "Address of a vLLM server, such as `http://127.0.0.1:8000`.",
        "VLLM_API_BASE",
        "VLLM_BASE_URL",
    )
    llamacpp_base_url: str | None = setting(
        "providers.llamacpp.base_url",
        "Address of a llama.cpp server, such as `http://127.0.0.1:8080`.",
        "LLAMACPP_BASE_URL",
    )
    localai_base_url: str | None = setting(
        "providers.localai.base_url",
        "Address of a LocalAI server, such as `http://127.0.0.1:8080`.",
        "LOCALAI_BASE_URL",
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
    )
    provider_limits: tuple[str, ...] = setting(
        "models.limits",
        "Limits per provider, shared by all agents: `openai: calls=8 requests=500 tokens=200000 dollars=5, ollama: "
        "calls=1` (calls at once, requests and tokens a minute, dollars a day).",
        "KELPIE_PROVIDER_LIMITS",
        default=(),
    )
    model_prices: tuple[str, ...] = setting(
        "models.prices",
        "Dollars per million tokens, input/output: `openai/gpt-4o=2.50/10.00, groq/*=0.10/0.20`.",
        "KELPIE_MODEL_PRICES",
        default=(),
    )
    provider_wait_s: float = setting(
        "models.wait_seconds",
        "How long a call may wait for the limits of its provider before it is answered with 429.",
        "KELPIE_PROVIDER_WAIT_SECONDS",
        default=30.0,
        seconds=True,
    )

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Settings":
        """The settings that the environment gives. Raises ConfigurationError naming the variable and the remedy."""
        return resolve({}, env).settings


SETTINGS: Mapping[str, Setting] = specs(fields(Settings))
KEYS: Mapping[str, str] = {spec.key: name for name, spec in SETTINGS.items()}
VARIABLES: Mapping[str, str] = {variable: name for name, spec in SETTINGS.items() for variable in spec.env}


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings and the origin of each, by field name."""

    settings: Settings
    origins: Mapping[str, Origin]
    file: str | None = None

    def located(self, error: ConfigurationError) -> ConfigurationError:
        """The same error, naming the place its value really came from instead of the variable it could come from."""
        field = VARIABLES.get(error.setting)
        origin = self.origins[field] if field else None
        return ConfigurationError(origin.where, error.remedy) if origin and origin.where else error


def resolve(
    flags: Mapping[str, tuple[str, str]],
    env: Mapping[str, str],
    given: Mapping[str, Given] | None = None,
    file: str | None = None,
) -> Resolved:
    """Decides every setting: flags (field -> option and text), environment, what the file gives (by key), defaults.

    Raises ConfigurationError naming the origin of a wrong value and the remedy.
    """
    values, origins = decide(SETTINGS, flags, env, given or {})
    return Resolved(Settings(**values), origins, file)  # pyright: ignore[reportArgumentType]
