"""A group as Letta's clients see it."""

from typing import Any

from kelpie.core.agents.groups import Group


def group_shape(group: Group) -> dict[str, Any]:
    manager = group.manager
    return {
        "id": group.id,
        "manager_type": manager.type,
        "agent_ids": list(group.agent_ids),
        "description": group.description,
        "project_id": group.project_id,
        "template_id": group.template_id,
        "base_template_id": group.base_template_id,
        "deployment_id": group.deployment_id,
        "shared_block_ids": list(group.shared_block_ids),
        "manager_agent_id": manager.agent_id,
        "termination_token": manager.termination_token,
        "max_turns": manager.max_turns,
        "sleeptime_agent_frequency": manager.sleeptime_agent_frequency,
        "turns_counter": group.turns_counter,
        "last_processed_message_id": group.last_processed_message_id,
        "max_message_buffer_length": manager.max_message_buffer_length,
        "min_message_buffer_length": manager.min_message_buffer_length,
        "hidden": group.hidden,
    }
