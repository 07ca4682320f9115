"""Sandbox configurations in requests and responses."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kelpie.core.json_limits import LISTED
from kelpie.core.tools.sandbox_configs import SandboxConfig, SandboxType, SandboxVariable
from kelpie.server.http.limits.free_json import within
from kelpie.server.http.times import timestamp
from kelpie.server.letta.tools.body import Requirement

REQUIREMENTS_MAX = 1000
TIMEOUT_S_MAX = 24 * 3600

Timeout = Annotated[int, Field(ge=1, le=TIMEOUT_S_MAX)]
Packages = Annotated[list[str], Field(max_length=REQUIREMENTS_MAX)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _is_small(cls, given: Any) -> Any:
        return within(LISTED)(given)  # a variable may be a long text


class LocalSandbox(_Strict):
    """Tools run on this machine."""

    sandbox_dir: str | None = None
    use_venv: bool = False
    venv_name: str = "venv"
    pip_requirements: Annotated[list[Requirement], Field(max_length=REQUIREMENTS_MAX)] = []


class E2bSandbox(_Strict):
    timeout: Timeout = 300
    template: str | None = None
    pip_requirements: Packages | None = None


class ModalSandbox(_Strict):
    timeout: Timeout = 60
    pip_requirements: Packages | None = None
    npm_requirements: Packages | None = None
    language: Literal["python", "typescript"] = "python"


class SandboxBody(_Strict):
    """The fields decide which kind it is; an empty body is the local one."""

    config: LocalSandbox | E2bSandbox | ModalSandbox


class CreateVariable(_Strict):
    key: str
    value: str
    description: str | None = None


class UpdateVariable(_Strict):
    """Changes to a variable; omitted or null fields stay as they are."""

    key: str | None = None
    value: str | None = None
    description: str | None = None


_KINDS: dict[type[BaseModel], SandboxType] = {
    LocalSandbox: SandboxType.local,
    E2bSandbox: SandboxType.e2b,
    ModalSandbox: SandboxType.modal,
}


def sandbox_type(config: LocalSandbox | E2bSandbox | ModalSandbox) -> SandboxType:
    return _KINDS[type(config)]


def config_shape(config: SandboxConfig) -> dict[str, Any]:
    return {**_record(config), "type": config.type, "config": dict(config.config)}


def variable_shape(variable: SandboxVariable) -> dict[str, Any]:
    return {
        **_record(variable),
        "key": variable.key,
        "value": variable.value,
        "description": variable.description,
        "value_enc": None,
        "sandbox_config_id": variable.sandbox_config_id,
        **({} if variable.unreadable is None else {"kelpie_error": variable.unreadable}),
    }


def _record(row: SandboxConfig | SandboxVariable) -> dict[str, Any]:
    return {
        "created_by_id": row.created_by_id,
        "last_updated_by_id": row.last_updated_by_id,
        "created_at": timestamp(row.created_at),
        "updated_at": timestamp(row.updated_at),
        "id": row.id,
        "organization_id": row.organization_id,
    }
