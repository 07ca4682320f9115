"""Settings of model providers: a provider is offered when its key or its address is set."""

from dataclasses import dataclass

from kelpie.core.access.hosts import check_address
from kelpie.core.models.ollama_host import check_ollama_host
from kelpie.core.settings.declaration import setting


@dataclass(frozen=True)
class ProviderSettings:
    """Keys and addresses of model providers."""

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
    ollama_host: str | None = setting(
        "providers.ollama.host",
        "Address of an Ollama server as Ollama itself writes it: `host`, `host:port` or a URL. The base URL takes "
        "precedence. `0.0.0.0` means this machine.",
        "OLLAMA_HOST",
        check=check_ollama_host,
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
    provider_private: bool = setting(
        "providers.private",
        "Whether providers that organizations add over the API may be on this machine or in a private network. The "
        "addresses in these settings may always be.",
        "KELPIE_PROVIDER_PRIVATE",
        default=False,
    )
