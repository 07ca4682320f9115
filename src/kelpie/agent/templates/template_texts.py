"""Texts of a template that may contain variables: the instructions of its agents and the values of its blocks."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kelpie.core.agents import templates
from kelpie.core.agents.agent import NewAgent
from kelpie.core.agents.agent_file import AgentFile
from kelpie.core.agents.templates import FILLED_CHARS_MAX, PLACES_MAX, VARIABLES_MAX
from kelpie.core.errors import InvalidInput
from kelpie.core.memory.blocks import NewBlock


def variables(file: AgentFile) -> tuple[str, ...]:
    """The variables of a template, each once. Raises InvalidInput for too many."""
    places = templates.variables_in(_texts(file))
    if len(places) > PLACES_MAX:
        raise InvalidInput("file", f"has variables in {len(places)} places; at most {PLACES_MAX} are allowed")
    found = tuple(dict.fromkeys(places))
    if len(found) > VARIABLES_MAX:
        raise InvalidInput("file", f"has {len(found)} variables; at most {VARIABLES_MAX} are allowed")
    return found


def filled(file: AgentFile, values: Mapping[str, str]) -> AgentFile:
    """The file with its variables filled in. Raises InvalidInput when its texts would become too long."""
    total = sum(templates.filled_chars(text, values) for text in _texts(file))
    if total > FILLED_CHARS_MAX:
        raise InvalidInput(
            "memory_variables",
            f"make the texts of the template {total} characters long; at most {FILLED_CHARS_MAX} are allowed",
        )
    return replace(
        file,
        agents=tuple(replace(agent, new=_agent(agent.new, values)) for agent in file.agents),
        blocks=tuple(replace(block, new=_block(block.new, values)) for block in file.blocks),
    )


def _texts(file: AgentFile) -> Iterator[str]:
    for agent in file.agents:
        yield agent.new.system or ""
        yield from (block.value for block in agent.new.memory_blocks)
    yield from (block.new.value for block in file.blocks)


def _agent(new: NewAgent, values: Mapping[str, str]) -> NewAgent:
    system = None if new.system is None else templates.filled(new.system, values)
    return replace(new, system=system, memory_blocks=tuple(_block(block, values) for block in new.memory_blocks))


def _block(new: NewBlock, values: Mapping[str, str]) -> NewBlock:
    return replace(new, value=templates.filled(new.value, values))
