"""Types of model providers, by the names that Letta's users know: which protocol each speaks, and where it is.

One table for the providers of the settings and for those that organizations add over the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProviderType:
    """A type of provider. `url` is where it is unless another address is given; None: it must be given."""

    name: str
    protocol: str  # "openai", "anthropic", "azure", "hosted", "google", or "local"
    url: str | None = None
    keyless: bool = False  # true if it is used without a key as well
    server: str = ""  # for local ones: the kind of server


def _hosted(name: str, url: str) -> ProviderType:
    return ProviderType(name, "hosted", url)


def _local(name: str, server: str | None = None) -> ProviderType:
    return ProviderType(name, "local", keyless=True, server=server or name)


PROVIDER_TYPES: Mapping[str, ProviderType] = {
    each.name: each
    for each in (
        ProviderType("anthropic", "anthropic", "https://api.anthropic.com"),
        ProviderType("azure", "azure"),
        _hosted("baseten", "https://inference.baseten.co/v1"),
        _hosted("cerebras", "https://api.cerebras.ai/v1"),
        _hosted("deepseek", "https://api.deepseek.com/v1"),
        _hosted("fireworks", "https://api.fireworks.ai/inference/v1"),
        ProviderType("google_ai", "google", "https://generativelanguage.googleapis.com/v1beta/openai"),
        _hosted("groq", "https://api.groq.com/openai/v1"),
        _hosted("hugging-face", "https://router.huggingface.co/v1"),
        _local("llamacpp"),
        _local("lmstudio"),
        _local("lmstudio_openai", "lmstudio"),
        _local("localai"),
        _hosted("minimax", "https://api.minimax.io/v1"),
        _hosted("mistral", "https://api.mistral.ai/v1"),
        _hosted("moonshot", "https://api.moonshot.ai/v1"),
        _hosted("moonshot_coding", "https://api.kimi.com/coding/v1"),
        _local("ollama"),
        ProviderType("openai", "openai", "https://api.openai.com/v1"),
        _hosted("openrouter", "https://openrouter.ai/api/v1"),
        ProviderType("sglang", "hosted", keyless=True),
        _hosted("together", "https://api.together.xyz/v1"),
        _local("vllm"),
        _hosted("xai", "https://api.x.ai/v1"),
        _hosted("zai", "https://api.z.ai/api/paas/v4"),
        _hosted("zai_coding", "https://api.z.ai/api/coding/paas/v4"),
    )
}

# Types of Letta that Kelpie cannot call, and why.
UNUSABLE_TYPES: Mapping[str, str] = {
    "bedrock": "Kelpie does not sign requests as AWS wants them; use a gateway with OpenAI's API and the type 'openai'",
    "chatgpt_oauth": "it needs the login of a ChatGPT subscription; use the type 'openai' with an API key",
    "google_vertex": "it needs a Google service account; use the type 'google_ai' with a Gemini API key",
    "letta": "Letta's own models are no longer served",
}
