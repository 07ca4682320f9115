"""Planted bugs in the client of MCP: its connections, breaker, calls, tasks, questions, lists of tools and tokens.

`tests/sim/mutations.py` has the others, and describes how they are used.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from kelpie.agent.maintenance.mcp_tasks import McpTaskFollower
from kelpie.core.conversations.runs import MAX_STEPS_DEFAULT
from kelpie.core.errors import McpError, StorageError
from kelpie.fairness.organization_share import OrganizationShare
from kelpie.mcp.client.session import Session
from kelpie.mcp.connections import pool
from kelpie.mcp.connections.breaker import Breaker
from kelpie.mcp.connections.connection import Connection
from kelpie.mcp.connections.limits import ConnectionLimits
from kelpie.mcp.oauth.authorization import OAuthTokens
from kelpie.mcp.oauth.login import OAuthClient
from kelpie.mcp.transports.pending import PendingRequests
from kelpie.mcp.transports.streamable_http import StreamableHttpTransport
from kelpie.storage.agents.ownership_fence import NOBODY
from kelpie.storage.runs import runs
from kelpie.storage.runs.input import RunInput
from kelpie.storage.runs.unfinished import StoredRun
from kelpie.tools.mcp import runner
from kelpie.tools.registry import mcp_upkeep
from tests.sim.mutations import Mutation

_BROKEN = "mcp-servers-that-break"
_SHARED = "mcp-programs-of-two-organizations"
_TASKS = "mcp-tasks-and-restarts"
_QUESTIONS = "mcp-questions-and-crashes"
_LISTS = "mcp-tools-that-change"
_TOKENS = "mcp-tokens-that-end"


def a_call_whose_stream_cannot_be_resumed_is_made_again(patch: pytest.MonkeyPatch) -> None:
    async def resume(self: Any, request: Any, reader: Any) -> Any:
        sent = {**await self._common(), "last-event-id": reader.last_id, "accept": "text/event-stream"}
        async with self._exchange.open("GET", self._url, sent) as response:
            if response.status_code >= 400:
                raise await self._refusal(response)
            return await self._until_answer(request, response, reader)

    patch.setattr(StreamableHttpTransport, "_resume", resume)


def programs_that_are_being_started_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pool, "_is_open", lambda connection: connection.connected)


def a_connection_that_broke_once_is_of_the_older_generation_for_ever(patch: pytest.MonkeyPatch) -> None:
    original = Connection._opened

    async def opened(self: Any) -> Any:
        try:
            return await original(self)
        except McpError:
            self._session_only = True
            raise

    patch.setattr(Connection, "_opened", opened)


def what_a_server_repeats_of_its_secrets_is_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connection, "_without_secrets", lambda _, text: text)


def a_breaker_that_is_open_stays_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Breaker, "admit", lambda self: self._retry_at is None)


def a_call_has_no_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConnectionLimits, "of", lambda self, _: replace(self, read_s=600.0, call_s=600.0))


def an_answer_goes_to_whoever_waits_for_longest(patch: pytest.MonkeyPatch) -> None:
    original = PendingRequests.resolve

    def resolve(self: Any, message: Any) -> bool:
        waiting = [key for key, each in self._waiting.items() if not each.done()]
        return original(self, replace(message, id=waiting[0] if waiting else message.id))

    patch.setattr(PendingRequests, "resolve", resolve)


def a_task_is_over_before_its_agent_is_told(patch: pytest.MonkeyPatch) -> None:
    original = McpTaskFollower._store

    async def store(self: Any, task: Any, wait_s: Any, told: Any = None) -> None:
        await original(self, task, wait_s)
        if told is None:
            return
        module = original.__globals__
        run = self._run(task, self._world.clock.now())
        given = RunInput((module["_message"](task, told),), MAX_STEPS_DEFAULT)
        await self._world.database.transact(lambda tx: runs.open_run(tx, run, task.organization_id, given, NOBODY))
        self._run_queue.submit(StoredRun(run.id, run.agent_id, run.conversation_id))

    patch.setattr(McpTaskFollower, "_store", store)


def a_task_that_could_not_be_asked_about_is_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kelpie.agent.maintenance.mcp_tasks.FAILURES_MAX", 1)


def the_answers_of_a_person_are_not_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runner, "_given", lambda _: None)


def lists_of_tools_are_stored_as_they_come(patch: pytest.MonkeyPatch) -> None:
    original = Connection.__init__

    def init(self: Any, *given: Any) -> None:
        original(self, *given)
        self.listing = AsyncExitStack()

    patch.setattr(Connection, "__init__", init)


def a_change_of_tools_that_cannot_be_read_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mcp_upkeep, "TRIES_MAX", 1)


def a_change_of_tools_before_somebody_listens_is_missed(patch: pytest.MonkeyPatch) -> None:
    original = Connection._listen

    async def listen(self: Any, session: Any, hears: Any, fails: Any) -> None:
        await original(self, session, fails, fails)

    patch.setattr(Connection, "_listen", listen)


def a_list_of_tools_that_did_not_come_counts_as_read(patch: pytest.MonkeyPatch) -> None:
    original = Session.tools

    async def tools(self: Any) -> Any:
        try:
            return await original(self)
        except BaseException:
            self.expect_tools()
            raise

    patch.setattr(Session, "tools", tools)


def a_connection_that_opens_while_it_is_closed_stays_open(patch: pytest.MonkeyPatch) -> None:
    original = Connection.close

    async def close(self: Any) -> None:
        self._under_way = None
        await original(self)
        self._closed = False

    patch.setattr(Connection, "close", close)


def a_renewal_of_tokens_ends_with_the_call_that_waits_for_it(patch: pytest.MonkeyPatch) -> None:
    async def renewed(self: Any, server_id: str, spent: str | None) -> Any:
        lock = self._renewing.setdefault(server_id, asyncio.Lock())
        async with lock:
            return await self._renew(server_id, spent)

    patch.setattr(OAuthTokens, "renewed", renewed)
    patch.setattr(OAuthTokens, "close", _nothing)


def tokens_are_renewed_by_everybody(patch: pytest.MonkeyPatch) -> None:
    async def renewed(self: Any, server_id: str, spent: str | None) -> Any:
        work = asyncio.ensure_future(self._renew(server_id, spent))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(work)

    patch.setattr(OAuthTokens, "renewed", renewed)


def a_refresh_token_that_stays_is_lost(patch: pytest.MonkeyPatch) -> None:
    async def refresh(self: Any, grant: Any, now: int) -> Any:
        renewed = await original(self, grant, now)
        return renewed if renewed.refresh_token != grant.refresh_token else replace(renewed, refresh_token=None)

    original = OAuthClient.refresh
    patch.setattr(OAuthClient, "refresh", refresh)


def a_renewed_token_that_cannot_be_stored_is_dropped(patch: pytest.MonkeyPatch) -> None:
    original = OAuthTokens._keep

    async def keep(self: Any, server_id: str) -> None:
        try:
            await original(self, server_id)
        except StorageError:
            self._unsaved.pop(server_id, None)
            raise

    patch.setattr(OAuthTokens, "_keep", keep)


def an_organization_may_have_every_program(patch: pytest.MonkeyPatch) -> None:
    original = pool.ConnectionPool._with_room

    def with_room(self: Any, wanted: Any) -> Any:
        self._share = OrganizationShare()
        return original(self, wanted)

    patch.setattr(pool.ConnectionPool, "_with_room", with_room)


async def _nothing(_: Any) -> None:
    return


MCP_MUTATIONS = (
    Mutation(a_call_whose_stream_cannot_be_resumed_is_made_again, _BROKEN, 48, 60, "a call is made once"),
    Mutation(programs_that_are_being_started_are_not_counted, _BROKEN, 0, 6, "programs of servers are bounded"),
    Mutation(
        a_connection_that_broke_once_is_of_the_older_generation_for_ever, _BROKEN, 3, 24, "a server that works is used"
    ),
    Mutation(what_a_server_repeats_of_its_secrets_is_told, _BROKEN, 0, 12, "secrets of servers stay inside"),
    Mutation(a_breaker_that_is_open_stays_open, _BROKEN, 0, 12, "a server that works is used"),
    Mutation(a_call_has_no_limit, _BROKEN, 1, 24, "a call ends within its limit"),
    Mutation(an_answer_goes_to_whoever_waits_for_longest, _BROKEN, 1, 12, "a result is that of its call"),
    Mutation(an_organization_may_have_every_program, _SHARED, 0, 12, "one organization leaves room for another"),
    Mutation(a_task_is_over_before_its_agent_is_told, _TASKS, 0, 40, "a task has one result"),
    Mutation(a_task_that_could_not_be_asked_about_is_given_up, _TASKS, 3, 12, "a task ends as it does on its server"),
    Mutation(the_answers_of_a_person_are_not_sent, _QUESTIONS, 2, 6, "a call is made once|nothing asks twice"),
    Mutation(lists_of_tools_are_stored_as_they_come, _LISTS, 5, 40, "a list of tools never goes back"),
    Mutation(a_change_of_tools_that_cannot_be_read_is_forgotten, _LISTS, 22, 24, "a change of tools is followed"),
    Mutation(a_change_of_tools_before_somebody_listens_is_missed, _LISTS, 49, 150, "a change of tools is followed"),
    Mutation(a_list_of_tools_that_did_not_come_counts_as_read, _LISTS, 9, 60, "a change of tools is followed"),
    Mutation(a_connection_that_opens_while_it_is_closed_stays_open, _LISTS, 17, 40, "what nobody uses ends|bounded"),
    Mutation(
        a_renewal_of_tokens_ends_with_the_call_that_waits_for_it, _TOKENS, 0, 12, "a refresh token is (not lost|used)"
    ),
    Mutation(a_refresh_token_that_stays_is_lost, _TOKENS, 8, 40, "a refresh token is not lost"),
    Mutation(tokens_are_renewed_by_everybody, _TOKENS, 1, 12, "a refresh token is (not lost|used)"),
    Mutation(a_renewed_token_that_cannot_be_stored_is_dropped, _TOKENS, 9, 40, "a refresh token is (not lost|used)"),
)
