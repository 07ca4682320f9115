"""Sending messages to an agent, as one answer or as a stream, and reading its history."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from starlette.responses import Response

from kelpie.agent.events import Lagged, MessageCommitted, TurnEnded
from kelpie.agent.listener import Turn
from kelpie.core.errors import InvalidId, NotFound
from kelpie.core.ids import AgentId, MessageId
from kelpie.core.messages import MessageQuery
from kelpie.server.answer import Answer
from kelpie.server.body import JsonRoute
from kelpie.server.errors import Unprocessable
from kelpie.server.house import House
from kelpie.server.letta.agents import shape
from kelpie.server.letta.ids import AgentPath, MessagePath
from kelpie.server.letta.message_body import SendBody, send_command
from kelpie.server.letta.message_shape import View, messages, wire_messages
from kelpie.server.letta.paging import Order, limit_query
from kelpie.server.letta.reset_body import ResetMessages
from kelpie.server.letta.sdk import SdkV1
from kelpie.server.letta.stream_shape import Frames, shown, stop_shape, usage_shape
from kelpie.server.sse import EventStream

router = APIRouter(tags=["messages"], route_class=JsonRoute)

_STREAMED = {200: {"content": {"text/event-stream": {}}, "description": "With `streaming`: server-sent events."}}
