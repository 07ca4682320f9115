"""Prompts as a model saw them, or would see them next: split into parts, with the tokens of each."""

from typing import Annotated, Any

from fastapi import Query

from kelpie.agent.prompt.prompt_inspection import InspectedPart, InspectedPrompt
from kelpie.core.agents.agent import Include
from kelpie.core.ids import ConversationId
from kelpie.server.http.json_answer import JsonAnswer
from kelpie.server.http.path_ids import AgentPath, StepPath
from kelpie.server.http.routing.caller_api import CallerApi
from kelpie.server.http.routing.router import resource
from kelpie.server.http.times import timestamp

router = resource("/kelpie", "prompts (Kelpie)")

NOT_STORED = (
    "The prompt of this step is not stored. The server keeps the prompts of the newest steps; set KELPIE_TRACE_STEPS "
    "to keep more."
)
CUT_OFF = "The prompt of this step was too large to be stored whole; raise KELPIE_TRACE_BYTES_MAX."
NOT_JSON = "The prompt of this step was sent in a form that cannot be split into parts."


@router.get("/steps/{step_id}/prompt", summary="Get the exact prompt of a step, in parts (Kelpie)", response_model=None)
async def step_prompt(api: CallerApi, step_id: StepPath) -> JsonAnswer:
    found = await api.runs.prompt(step_id)
    why_not = None
    if found.prompt is None:
        why_not = NOT_STORED if found.trace is None else CUT_OFF if found.is_cut_off else NOT_JSON
    return JsonAnswer(
        {
            "step_id": found.step.id,
            "run_id": found.step.run_id,
            "agent_id": found.step.agent_id,
            "created_at": timestamp(found.step.created_at),
            "model": found.step.model_handle,
            "context_window": found.step.context_window_limit,
            "prompt_tokens": found.step.usage.prompt_tokens,
            "bytes": None if found.trace is None else found.trace.request_bytes,
            "why_not": why_not,
            **prompt_shape(found.prompt),
        }
    )


@router.get(
    "/agents/{agent_id}/prompt",
    summary="Get the prompt of an agent's next step, in parts (Kelpie)",
    response_model=None,
)
async def next_prompt(
    api: CallerApi,
    agent_id: AgentPath,
    conversation_id: Annotated[str | None, Query(description="A conversation of the agent.")] = None,
) -> JsonAnswer:
    agent = (await api.agents.get(agent_id, Include())).agent
    thread = agent_id if conversation_id in (None, "default") else ConversationId.parse(conversation_id)
    prompt = await api.model_previews.prompt(thread)
    return JsonAnswer(
        {
            "agent_id": agent_id,
            "model": agent.model.handle,
            "context_window": agent.model.context_window,
            "prompt_tokens": None,
            "why_not": None if prompt else NOT_JSON,
            **prompt_shape(prompt),
        }
    )


def prompt_shape(prompt: InspectedPrompt | None) -> dict[str, Any]:
    """The parts; their tokens are estimates, because each provider counts in its own way."""
    if prompt is None:
        return {"parts": [], "options": {}, "left_out": 0}
    return {
        "parts": [_part_shape(part) for part in prompt.parts],
        "options": dict(prompt.options),
        "left_out": prompt.left_out,
    }


def _part_shape(part: InspectedPart) -> dict[str, Any]:
    return {"kind": part.kind, "label": part.label, "tokens": part.tokens, "text": part.text}
