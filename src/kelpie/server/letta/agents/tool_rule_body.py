"""Tool rules as clients write them; each type has its own further fields."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from kelpie.core.agents.agent import ToolRule

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


class ChildArguments(BaseModel):
    """Arguments that a child tool gets from the rule."""

    name: str
    args: dict[str, Any] | None = None


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
    child_arg_nodes: list[ChildArguments] | None = None
    child_output_mapping: dict[str, str] | None = None
    default_child: str | None = None
    require_output_mapping: bool | None = None
    max_count_limit: int | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> "ToolRuleBody":
        for name in _FIELDS[self.type][0]:
            if getattr(self, name) is None:
                raise ValueError(f"a rule of type {self.type} needs {name}")
        if self.type == "constrain_child_tools":
            for node in self.child_arg_nodes or ():
                if node.name not in (self.children or ()):
                    raise ValueError(f"child_arg_nodes names '{node.name}', which is not in children; add it there")
        return self


def tool_rule(body: ToolRuleBody) -> ToolRule:
    required, optional = _FIELDS[body.type]
    given = body.model_dump(include={*required, *optional})
    return ToolRule(body.type, body.tool_name, {name: value for name, value in given.items() if value is not None})
