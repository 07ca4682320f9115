"""Request bodies for MCP servers, in the fields of both of Letta's APIs for them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from kelpie.core.errors import InvalidInput
from kelpie.core.json_limits import SETTINGS
from kelpie.core.tools.mcp_servers import (
    GrantedDirectory,
    McpConfig,
    McpOptions,
    McpServerType,
    bare_token,
    check_address,
)
from kelpie.server.http.limits.free_json import Arguments as ToolArguments
from kelpie.server.http.limits.free_json import NamedTexts, within
from kelpie.server.http.masks import MASK
from kelpie.tools.registry.mcp_servers import Change

ITEMS_MAX = 1000
SECONDS_MAX = 86_400.0
MEMORY_MB_MAX = 1024 * 1024
_ONLY_A_MASK = f"{MASK} stands for a value that is not shown; send the value itself"

Texts = Annotated[list[str], Field(max_length=ITEMS_MAX, fail_fast=True)]
Pairs = NamedTexts


def _address(url: str) -> str:
    try:
        return check_address("server_url", url, private=True)  # which of them are allowed is a setting
    except InvalidInput as error:
        raise ValueError(error.remedy) from None


Address = Annotated[str, AfterValidator(_address)]
Seconds = Annotated[float, Field(gt=0, le=SECONDS_MAX)]


class _Bounded(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def _is_small(cls, given: Any) -> Any:
        return within(SETTINGS)(given)


class _Strict(_Bounded):
    model_config = ConfigDict(extra="forbid")


class Directory(_Strict):
    """A directory of the server's machine that a stdio server may use."""

    path: str
    writable: bool = False


class KelpieOptions(_Strict):
    """Kelpie's own settings of a server (Kelpie only): time limits, and for stdio what its sandbox grants."""

    connect_seconds: Seconds | None = None
    read_seconds: Seconds | None = None
    call_seconds: Seconds | None = None
    egress: Texts = []
    memory_mb: Annotated[int, Field(ge=32, le=MEMORY_MB_MAX)] | None = None
    directories: Annotated[list[Directory], Field(max_length=20, fail_fast=True)] = []


class StdioConfig(_Strict):
    """A server that is a program on this machine."""

    mcp_server_type: Literal["stdio"] = "stdio"
    command: str
    args: Texts
    env: Pairs | None = None
    kelpie_options: KelpieOptions | None = None


class _NetworkConfig(_Strict):
    server_url: Address
    auth_header: str | None = None
    auth_token: str | None = None
    custom_headers: Pairs | None = None
    kelpie_options: KelpieOptions | None = None


class SseConfig(_NetworkConfig):
    mcp_server_type: Literal["sse"] = "sse"


class HttpConfig(_NetworkConfig):
    mcp_server_type: Literal["streamable_http"] = "streamable_http"


class CreateServer(_Strict):
    server_name: str
    config: Annotated[StdioConfig | SseConfig | HttpConfig, Field(discriminator="mcp_server_type")]


class StdioChange(_Strict):
    mcp_server_type: Literal["stdio"] = "stdio"
    command: str | None
    args: Texts | None
    env: Pairs | None = None
    kelpie_options: KelpieOptions | None = None


class _NetworkChange(_Strict):
    server_url: Address | None
    auth_header: str | None = None
    auth_token: str | None = None
    custom_headers: Pairs | None = None
    kelpie_options: KelpieOptions | None = None


class SseChange(_NetworkChange):
    mcp_server_type: Literal["sse"] = "sse"


class HttpChange(_NetworkChange):
    mcp_server_type: Literal["streamable_http"] = "streamable_http"


class UpdateServer(_Strict):
    """Changes to a server; omitted or null fields stay as they are."""

    server_name: str | None = None
    config: Annotated[StdioChange | SseChange | HttpChange, Field(discriminator="mcp_server_type")]


class Arguments(BaseModel):
    """The arguments of a call."""

    args: ToolArguments = Field(default_factory=dict[str, Any])


class OldServer(_Bounded):
    """A server in the fields of the older API; without a `type`, the other fields decide which kind it is."""

    server_name: str
    type: McpServerType | None = None
    command: str | None = None
    args: Texts | None = None
    env: Pairs | None = None
    server_url: Address | None = None
    auth_header: str | None = None
    auth_token: str | None = None
    custom_headers: Pairs | None = None

    @model_validator(mode="after")
    def _complete(self) -> "OldServer":
        if self.type is None:
            self.type = McpServerType.sse if self.command is None else McpServerType.stdio
        if self.type is McpServerType.stdio and (self.command is None or self.args is None):
            raise ValueError("a stdio server needs command and args")
        if self.type is not McpServerType.stdio and self.server_url is None:
            raise ValueError("an sse or streamable_http server needs server_url")
        return self


class OldChange(_Strict):
    """Changes to a server in the fields of the older API; omitted or null fields stay as they are."""

    server_name: str | None = None
    stdio_config: OldServer | None = None
    server_url: Address | None = None
    token: str | None = None
    auth_header: str | None = None
    auth_token: str | None = None
    custom_headers: Pairs | None = None


def new_config(body: StdioConfig | SseConfig | HttpConfig) -> McpConfig:
    return _made(McpServerType(body.mcp_server_type), body.model_dump())


def old_config(body: OldServer) -> McpConfig:
    assert body.type is not None, "filled in when it was validated"
    return _made(body.type, body.model_dump())


def _made(kind: McpServerType, given: dict[str, Any]) -> McpConfig:
    values = _values(given)
    for name in ("token", "env", "custom_headers"):
        held = values.get(name)
        if held == MASK or (isinstance(held, Mapping) and MASK in held.values()):
            raise InvalidInput(f"config.{name}", _ONLY_A_MASK)
    return replace(McpConfig(kind), **values)


def check_public(config: BaseModel, where: str) -> None:
    """Raises RequestValidationError, as Letta does, for the address of a server in a private network."""
    url = getattr(config, "server_url", None)
    if url is None:
        return
    try:
        check_address("server_url", url)
    except InvalidInput as error:
        told = {"type": "value_error", "loc": ("body", *where.split(".")), "msg": f"Value error, {error.remedy}"}
        raise RequestValidationError([{**told, "input": url, "ctx": {"error": ValueError(error.remedy)}}]) from None


def config_change(body: StdioChange | SseChange | HttpChange) -> Change:
    """The change of a configuration in the body. It raises InvalidInput when the stored one is of another kind."""
    wanted = McpServerType(body.mcp_server_type)

    def change(before: McpConfig) -> McpConfig:
        if before.server_type is not wanted:
            raise InvalidInput(
                "config.mcp_server_type",
                f"the server is '{before.server_type}' and cannot become '{wanted}'; register another server",
            )
        return replace(before, **_kept(before, _values(body.model_dump(exclude_none=True))))

    return change


def old_change(body: OldChange) -> Change:
    def change(before: McpConfig) -> McpConfig:
        stdio = before.server_type is McpServerType.stdio
        given = body.model_dump(exclude_none=True, exclude={"server_name", "stdio_config"})
        if (body.stdio_config is not None and not stdio) or (stdio and given):
            raise InvalidInput("type", f"the server is '{before.server_type}'; send only the fields of this type")
        if body.stdio_config is not None:
            given = body.stdio_config.model_dump(exclude_none=True)
        if "token" in given:
            given["auth_token"] = given.pop("token")
        return replace(before, **_kept(before, _values(given)))

    return change


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of `McpConfig` among those of a body."""
    names = ("command", "env", "server_url", "auth_header", "custom_headers")
    values = {name: given[name] for name in names if name in given}
    if given.get("args") is not None:
        values["args"] = tuple(given["args"])
    if "auth_token" in given:
        values["token"] = bare_token(given["auth_token"])
    if given.get("kelpie_options") is not None:
        values["options"] = _options(given["kelpie_options"])
    return values


def _options(given: Mapping[str, Any]) -> McpOptions:
    return McpOptions(
        connect_s=given.get("connect_seconds"),
        read_s=given.get("read_seconds"),
        call_s=given.get("call_seconds"),
        egress=tuple(given.get("egress", ())),
        memory_mb=given.get("memory_mb"),
        directories=tuple(GrantedDirectory(each["path"], each["writable"]) for each in given.get("directories", ())),
    )


def _kept(before: McpConfig, values: dict[str, Any]) -> dict[str, Any]:
    """The values of a change; where one is only a mask, the stored one stays. Raises InvalidInput for a mask of a value
    that is not stored."""
    if values.get("token") == MASK:
        del values["token"]
    for name in ("env", "custom_headers"):
        if values.get(name) is not None:
            stored: Mapping[str, str] = getattr(before, name) or {}
            if any(value == MASK and key not in stored for key, value in values[name].items()):
                raise InvalidInput(f"config.{name}", _ONLY_A_MASK)
            values[name] = {key: stored[key] if value == MASK else value for key, value in values[name].items()}
    return values
