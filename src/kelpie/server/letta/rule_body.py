"""Tool rules as clients write them; each type has its own further fields."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from kelpie.core.agents import ToolRule

# Each type with the fields it must have, and those it may have.
_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run_first": ((), ("args",)),
    "constrain_child_tools": (("children",), ("child_arg_nodes",)),
    "parent_last_tool": (("children",), ()),
    "conditional": (("child_output_mapping",), ("default_child", "require_output_mapping")),
    "max_count_per_step": (("max_count_limit",), ()),
    "exit_loop": ((), ()),
    "continue_loop": ((), ()),
    "required_before_exit": ((), ()),
    "requires_approval": ((), ()),
}


class ToolRuleBody(BaseModel):
    """A rule; its type decides which of the further fields count."""

    model_config = ConfigDict(extra="ignore")

    type: Literal[
        "run_first",
        "constrain_child_tools",
        "parent_last_tool",
        "conditional",
        "max_count_per_step",
        "exit_loop",
        "continue_loop",
        "required_before_exit",
        "requires_approval",
    ]
    tool_name: str
    args: dict[str, Any] | None = None
    children: list[str] | None = None
    child_arg_nodes: list[dict[str, Any]] | None = None
    child_output_mapping: dict[str, str] | None = None
    default_child: str | None = None
    require_output_mapping: bool | None = None
    max_count_limit: int | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> "ToolRuleBody":
        for name in _FIELDS[self.type][0]:
            if getattr(self, name) is None:
                raise ValueError(f"a rule of type {self.type} needs {name}")
        return self


def tool_rule(body: ToolRuleBody) -> ToolRule:
    required, optional = _FIELDS[body.type]
    options = {name: value for name in (*required, *optional) if (value := getattr(body, name)) is not None}
    return ToolRule(body.type, body.tool_name, options)
