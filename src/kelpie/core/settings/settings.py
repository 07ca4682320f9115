"""Everything an operator can set: one table with names, default, bounds and meaning, and the order of precedence.

A flag takes precedence over an environment variable, that over kelpie.toml, that over the default. A wrong value is
refused with its location. So is a file that would send a key from the environment to an address of the file's own:
kelpie.toml may come with a directory that another person filled. Reading flags, environment and file is the caller's
job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from kelpie.core.access.hosts import check_address
from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.declaration import Setting, setting, specs
from kelpie.core.settings.model_settings import ModelSettings
from kelpie.core.settings.precedence import Origin, SettingSource, Source, decide


@dataclass(frozen=True, slots=True)
class Settings(ModelSettings):
    """All settings: those of the server and its agents, of the use of models, and here those of their providers."""

    openai_api_key: str | None = setting(
        "providers.openai.api_key",
        "Key for the OpenAI API or a compatible server; enables the models of `openai/`.",
        "OPENAI_API_KEY",
        secret=True,
    )
    openai_base_url: str = setting(
        "providers.openai.base_url",
        "Base URL of a server with an OpenAI-compatible API.",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
        default="https://api.openai.com/v1",
        check=check_address,
    )
    openai_responses: str = setting(
        "providers.openai.responses",
        "Whether Kelpie uses OpenAI's responses API for reasoning models: `auto` (only at api.openai.com), `always` or "
        "`never`.",
        "KELPIE_OPENAI_RESPONSES",
        default="auto",
        choices=("auto", "always", "never"),
    )
    anthropic_api_key: str | None = setting(
        "providers.anthropic.api_key",
        "Key for Anthropic; enables the models of `anthropic/`.",
        "ANTHROPIC_API_KEY",
        secret=True,
    )
    anthropic_base_url: str = setting(
        "providers.anthropic.base_url",
        "Base URL of a server with an Anthropic-compatible API.",
        "ANTHROPIC_BASE_URL",
        default="https://api.anthropic.com",
        check=check_address,
    )
    azure_api_key: str | None = setting(
        "providers.azure.api_key",
        "Key for Azure OpenAI; together with the base URL it enables the models of `azure/`.",
        "AZURE_API_KEY",
        secret=True,
    )
    azure_base_url: str | None = setting(
        "providers.azure.base_url",
        "Base URL of the Azure resource, such as `https://name.openai.azure.com`.",
        "AZURE_BASE_URL",
        check=check_address,
    )
    azure_api_version: str = setting(
        "providers.azure.api_version", "Version of Azure's API.", "AZURE_API_VERSION", default="2024-09-01-preview"
    )
    azure_deployments: tuple[str, ...] = setting(
        "providers.azure.deployments",
        "Azure deployments, as `name` or `name=model`, if the resource does not list them.",
        "AZURE_DEPLOYMENTS",
        default=(),
    )
    groq_api_key: str | None = setting(
        "providers.groq.api_key",
        "Key for Groq; enables the models of `groq/`.",
        "GROQ_API_KEY",
        secret=True,
    )
    together_api_key: str | None = setting(
        "providers.together.api_key",
        "Key for Together; enables the models of `together/`.",
        "TOGETHER_API_KEY",
        secret=True,
    )
    deepseek_api_key: str | None = setting(
        "providers.deepseek.api_key",
        "Key for DeepSeek; enables the models of `deepseek/`.",
        "DEEPSEEK_API_KEY",
        secret=True,
    )
    xai_api_key: str | None = setting(
        "providers.xai.api_key",
        "Key for xAI; enables the models of `xai/`.",
        "XAI_API_KEY",
        secret=True,
    )
    openrouter_api_key: str | None = setting(
        "providers.openrouter.api_key",
        "Key for OpenRouter; enables the models of `openrouter/`.",
        "OPENROUTER_API_KEY",
        secret=True,
    )
    ollama_base_url: str | None = setting(
        "providers.ollama.base_url",
        "Base URL of an Ollama server, such as `http://127.0.0.1:11434`.",
        "OLLAMA_BASE_URL",
        check=check_address,
    )
    lmstudio_base_url: str | None = setting(
        "providers.lmstudio.base_url",
        "Base URL of LM Studio, such as `http://127.0.0.1:1234`.",
        "LMSTUDIO_BASE_URL",
        check=check_address,
    )
    vllm_base_url: str | None = setting(
        "providers.vllm.base_url",
        "Base URL of a vLLM server, such as `http://127.0.0.1:8000`.",
        "VLLM_API_BASE",
        "VLLM_BASE_URL",
        check=check_address,
    )
    llamacpp_base_url: str | None = setting(
        "providers.llamacpp.base_url",
        "Base URL of a llama.cpp server, such as `http://127.0.0.1:8080`.",
        "LLAMACPP_BASE_URL",
        check=check_address,
    )
    localai_base_url: str | None = setting(
        "providers.localai.base_url",
        "Base URL of a LocalAI server, such as `http://127.0.0.1:8080`.",
        "LOCALAI_BASE_URL",
        check=check_address,
    )

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Settings":
        """The settings from the environment. Raises ConfigurationError naming the variable and the remedy."""
        return resolve({}, env).settings


SETTINGS: Mapping[str, Setting] = specs(fields(Settings))
KEYS: Mapping[str, str] = {spec.key: name for name, spec in SETTINGS.items()}
VARIABLES: Mapping[str, str] = {variable: name for name, spec in SETTINGS.items() for variable in spec.env}
# Field of an API key -> field of the address that it is sent to.
SENT_TO: Mapping[str, str] = {
    name: KEYS[address]
    for name, spec in SETTINGS.items()
    if spec.secret and (address := spec.key.removesuffix("api_key") + "base_url") in KEYS
}


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """The settings and the origin of each, by field name."""

    settings: Settings
    origins: Mapping[str, Origin]
    file: str | None = None

    def located(self, error: ConfigurationError) -> ConfigurationError:
        """The same error, naming the actual source of the value instead of the environment variable."""
        field = VARIABLES.get(error.setting)
        origin = self.origins[field] if field else None
        return ConfigurationError(origin.where, error.remedy) if origin and origin.where else error


def resolve(
    flags: Mapping[str, tuple[str, str]],
    env: Mapping[str, str],
    given: Mapping[str, SettingSource] | None = None,
    file: str | None = None,
) -> ResolvedSettings:
    """Decides every setting: flags (field -> option and text), environment, values of the file (by key), defaults.

    Raises ConfigurationError naming the origin of a wrong value and the remedy.
    """
    values, origins = decide(SETTINGS, flags, env, given or {})
    _keep_keys_home(origins)
    return ResolvedSettings(Settings(**values), origins, file)  # pyright: ignore[reportArgumentType]


def _keep_keys_home(origins: Mapping[str, Origin]) -> None:
    """Raises ConfigurationError when a file names the address to which a key from another source would be sent."""
    for key, address in SENT_TO.items():
        named, to = origins[key], origins[address]
        if to.source is Source.file and named.source in (Source.flag, Source.environment):
            raise ConfigurationError(
                to.where,
                f"the key of {named} would be sent to this URL, which is set only in the file. If you trust it, "
                f"set {SETTINGS[address].env[0]} to it, or keep the key only in this file; otherwise remove the line",
            )
