"""Everything an operator can set: one record of eleven groups, the table of its fields, and the order of precedence.

A flag takes precedence over an environment variable, that over kelpie.toml, that over the default. A wrong value is
refused with its location. So is a file that would send a key from the environment to an address of the file's own:
kelpie.toml may come with a directory that another person filled. Reading flags, environment and file is the caller's
job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from kelpie.core.errors import ConfigurationError
from kelpie.core.settings.agent_settings import AgentSettings
from kelpie.core.settings.connection_settings import ConnectionSettings
from kelpie.core.settings.declaration import Setting, specs
from kelpie.core.settings.file_settings import FileSettings
from kelpie.core.settings.mcp_settings import McpSettings
from kelpie.core.settings.model_settings import ModelSettings
from kelpie.core.settings.provider_settings import ProviderSettings
from kelpie.core.settings.quota_settings import QuotaSettings
from kelpie.core.settings.sandbox_settings import SandboxSettings
from kelpie.core.settings.server_settings import ServerSettings
from kelpie.core.settings.sources.precedence import Origin, SettingSource, Source, decide
from kelpie.core.settings.tool_settings import ToolSettings
from kelpie.core.settings.web_settings import WebSettings


# Dataclasses collect the fields of their bases from the last to the first: the table begins with the server.
@dataclass(frozen=True)
class Settings(
    ProviderSettings,
    ModelSettings,
    WebSettings,
    FileSettings,
    McpSettings,
    ToolSettings,
    SandboxSettings,
    AgentSettings,
    QuotaSettings,
    ConnectionSettings,
    ServerSettings,
):
    """All settings as one record, from ten groups that know nothing of each other."""

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Settings":
        """The settings from the environment. Raises ConfigurationError naming the variable and the remedy."""
        return resolve({}, env).settings


SETTINGS: Mapping[str, Setting] = specs(fields(Settings))
KEYS: Mapping[str, str] = {spec.key: name for name, spec in SETTINGS.items()}
VARIABLES: Mapping[str, str] = {variable: name for name, spec in SETTINGS.items() for variable in spec.env}
# Variables that hold Kelpie's own secrets; no other program gets them.
SECRET_VARIABLES = frozenset(variable for spec in SETTINGS.values() if spec.secret for variable in spec.env)
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
