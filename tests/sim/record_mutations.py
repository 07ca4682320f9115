"""Planted bugs in records of every kind, which the model of records notices.

`tests/sim/mutations.py` has the others, and describes how they are used.
"""

import sys
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from kelpie.accounts import authentication, credentials
from kelpie.accounts.access_tokens import AccessTokens
from kelpie.accounts.identities import Identities
from kelpie.accounts.last_use import LastUse
from kelpie.accounts.organizations import Organizations
from kelpie.accounts.users import Users
from kelpie.agent.resources import groups
from kelpie.core.permissions.quotas import Quota
from kelpie.files.folders import Folders
from kelpie.server.letta.schedules import routes as schedule_routes
from kelpie.storage import providers
from kelpie.storage.accounts import access_tokens, accounts
from kelpie.storage.agents import identities, projects
from kelpie.storage.encryption import columns
from kelpie.storage.files import attachments, folders
from kelpie.storage.templates import templates
from kelpie.storage.triggers import hooks, schedules
from kelpie.triggers.webhooks import Webhooks
from tests.sim.mutations import Mutation


def _without(patch: pytest.MonkeyPatch, module: Any, table: sa.Table, key: str, left_out: str) -> None:
    """Writes all columns that change but one."""
    names = [str(getattr(each, "name", each)) for each in module._CHANGEABLE]
    kept = [each for each in module._CHANGEABLE if str(getattr(each, "name", each)) != left_out]
    new = {name: sa.bindparam(f"new_{name}", type_=table.c[name].type) for name in names if name != left_out}
    patch.setattr(module, "_CHANGEABLE", kept)
    patch.setattr(module, "_UPDATE", sa.update(table).where(table.c.id == sa.bindparam(key)).values(new))


def an_upsert_of_an_identity_leaves_its_links(patch: pytest.MonkeyPatch) -> None:
    def replace_rows(self: Any, tx: Any, identity_id: Any, row_ids: Any) -> None:
        self.add(tx, row_ids, (identity_id,))

    patch.setattr(identities.Links, "replace_rows", replace_rows)


def a_block_that_a_group_no_longer_shares_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(groups, "_take_off", lambda *_: None)


def the_region_of_a_provider_never_changes(patch: pytest.MonkeyPatch) -> None:
    _without(patch, providers, providers.providers, "of_provider", "region")


def the_time_zone_of_a_schedule_never_changes(patch: pytest.MonkeyPatch) -> None:
    _without(patch, schedules, schedules.schedules, "of_schedule", "timezone")


def a_change_of_a_schedule_resets_what_it_does_not_name(patch: pytest.MonkeyPatch) -> None:
    original = schedule_routes.changed_schedule

    def changed(body: Any, before: Any) -> Any:
        return replace(original(body, before), missed_max=body.missed_max or 100)

    patch.setattr(schedule_routes, "changed_schedule", changed)


def a_webhook_that_is_off_takes_deliveries(patch: pytest.MonkeyPatch) -> None:
    async def shown(self: Any) -> Any:
        found = await self._world.database.read(lambda tx: hooks.find(tx, self._caller.key_id or ""))
        return found[0]

    patch.setattr(Webhooks, "_shown", shown)


def a_replaced_token_of_a_webhook_is_known_for_a_while(patch: pytest.MonkeyPatch) -> None:
    original = Webhooks.renew

    async def renew(self: Any, *given: Any) -> Any:
        self._changed = lambda: None
        return await original(self, *given)

    patch.setattr(Webhooks, "renew", renew)


def a_filter_by_a_tag_finds_all_projects(patch: pytest.MonkeyPatch) -> None:
    original = projects.page
    patch.setattr(projects, "page", lambda tx, within, query: original(tx, within, replace(query, tag=None)))


def a_changed_folder_is_not_told_to_its_agents(patch: pytest.MonkeyPatch) -> None:
    original = Folders.update

    async def update(self: Any, *given: Any) -> Any:
        self._reload_agents = lambda _: None
        return await original(self, *given)

    patch.setattr(Folders, "update", update)


def a_detached_folder_leaves_its_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attachments, "_CLOSE", sa.select(sa.literal(1)))


def folders_find_each_other_by_name_in_every_organization(patch: pytest.MonkeyPatch) -> None:
    here = folders.folders.c
    patch.setattr(folders, "_NAMED", sa.select(folders.folders).where(here.name == sa.bindparam("of_name")))


def a_template_that_is_rolled_back_forgets_its_newer_versions(patch: pytest.MonkeyPatch) -> None:
    def roll_back(tx: Any, template: Any, number: int, now: Any, user: Any) -> Any:
        tx.execute(templates._DROP, {"of_template": template.id})
        return templates._write(tx, template, number, number, False, now, user)

    patch.setattr(templates, "roll_back", roll_back)


def an_upsert_of_an_identity_links_anything(patch: pytest.MonkeyPatch) -> None:
    original = Identities._require_rows

    def require(self: Any, tx: Any, agents: Any, blocks: Any) -> None:
        if sys._getframe(1).f_code.co_name != "write":  # of an identity that is there
            original(self, tx, agents, blocks)

    patch.setattr(Identities, "_require_rows", require)


def tokens_of_a_user_who_moves_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accounts, "end_credentials", lambda tx, user: tx.execute(accounts._DELETE_KEYS, {"of_user": user}))


def keys_of_a_user_who_moves_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accounts, "end_credentials", lambda tx, user: tx.execute(accounts._DELETE_TOKENS, {"of_user": user}))


def processor_time_alone_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quota, "counts_calls", property(lambda self: self.tool_calls is not None))


def a_session_lasts_as_long_as_its_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(authentication, "min", lambda of_key, _: of_key, raising=False)


def agents_that_leave_a_project_stay_known_to_its_keys(patch: pytest.MonkeyPatch) -> None:
    original = authentication._of_projects
    known: dict[Any, Any] = {}

    def of_projects(tx: Any, given: Any) -> Any:
        return known.setdefault(given.key_id, original(tx, given))

    patch.setattr(authentication, "_of_projects", of_projects)


def a_key_for_a_project_loses_its_own_agents(patch: pytest.MonkeyPatch) -> None:
    original = authentication.with_agents
    patch.setattr(authentication, "with_agents", lambda given, agents: original(replace(given, grants={}), agents))


def the_last_use_of_a_key_is_its_first(patch: pytest.MonkeyPatch) -> None:
    original = LastUse.note

    def note(self: Any, key_id: Any) -> None:
        if key_id not in self._written:
            original(self, key_id)

    patch.setattr(LastUse, "note", note)


def uses_are_written_once_in_the_life_of_a_server(patch: pytest.MonkeyPatch) -> None:
    original = LastUse.note

    def note(self: Any, key_id: Any) -> None:
        if self._writing is None:
            original(self, key_id)
        else:
            self._waiting[key_id] = self._world.clock.now()

    patch.setattr(LastUse, "note", note)


def a_token_is_listed_for_its_first_agent_only(patch: pytest.MonkeyPatch) -> None:
    class First:
        def fromkeys(self, agents: Any) -> Any:
            return dict.fromkeys(list(agents)[:1])

    patch.setattr(access_tokens, "dict", First(), raising=False)


def the_page_after_a_full_one_is_missing(patch: pytest.MonkeyPatch) -> None:
    original = AccessTokens.page

    async def page(self: Any, agent_id: Any, limit: int, offset: int) -> Any:
        found, more = await original(self, agent_id, limit, offset)
        return found, more and len(found) < limit

    patch.setattr(AccessTokens, "page", page)


def a_token_opens_the_last_of_its_agents(patch: pytest.MonkeyPatch) -> None:
    original = authentication.authorization_of_token
    patch.setattr(
        authentication, "authorization_of_token", lambda token: original(replace(token, policy=token.policy[-1:]))
    )


def a_token_cannot_be_revoked_by_its_id(patch: pytest.MonkeyPatch) -> None:
    original = AccessTokens.delete

    async def delete(self: Any, named: str) -> None:
        if credentials.parse(named) is not None:
            await original(self, named)

    patch.setattr(AccessTokens, "delete", delete)


def a_user_who_moves_is_known_for_a_while(patch: pytest.MonkeyPatch) -> None:
    original = Users.update

    async def update(self: Any, *given: Any) -> Any:
        self._changed = lambda: None
        return await original(self, *given)

    patch.setattr(Users, "update", update)


def a_user_stays_where_they_are(patch: pytest.MonkeyPatch) -> None:
    statement = sa.update(accounts.users).where(accounts.users.c.id == sa.bindparam("of_user"))
    new = {"name": sa.bindparam("new_name"), "updated_at": sa.bindparam("new_updated_at")}
    patch.setattr(accounts, "_UPDATE_USER", statement.values(new))


def a_new_organization_has_no_tools(patch: pytest.MonkeyPatch) -> None:
    original = Organizations.create

    async def create(self: Any, *given: Any, **named: Any) -> Any:
        self._furnish = lambda *_: None
        return await original(self, *given, **named)

    patch.setattr(Organizations, "create", create)


def users_are_listed_without_a_cursor(patch: pytest.MonkeyPatch) -> None:
    original = accounts.users_page
    patch.setattr(accounts, "users_page", lambda tx, within, page: original(tx, within, replace(page, after=None)))


def _resealed(patch: pytest.MonkeyPatch, table: str, *names: str) -> None:
    """A rotation that knows only these columns of the table."""
    kept = [each for each in columns.ENCRYPTED if each.table.name != table]
    of = next(each.table for each in columns.ENCRYPTED if each.table.name == table)
    patch.setattr(columns, "ENCRYPTED", (*kept, columns.EncryptedTable(of, names)))


def a_rotation_leaves_out_access_keys(patch: pytest.MonkeyPatch) -> None:
    _resealed(patch, "providers", "api_key")


def a_rotation_leaves_out_headers(patch: pytest.MonkeyPatch) -> None:
    _resealed(patch, "mcp_servers", "token", "env")


_NAME, _ACCESS = "api-model-of-records", "api-model-of-access"
_SHOWN = "the API shows what was done"

RECORDS = (
    Mutation(an_upsert_of_an_identity_leaves_its_links, _NAME, 0, 20, _SHOWN),
    Mutation(a_block_that_a_group_no_longer_shares_stays, _NAME, 8, 20, "a shared block"),
    Mutation(the_region_of_a_provider_never_changes, _NAME, 0, 20, _SHOWN),
    Mutation(the_time_zone_of_a_schedule_never_changes, _NAME, 4, 20, _SHOWN),
    Mutation(a_change_of_a_schedule_resets_what_it_does_not_name, _NAME, 4, 20, _SHOWN),
    Mutation(a_webhook_that_is_off_takes_deliveries, _NAME, 5, 80, "a webhook that is on"),
    Mutation(a_replaced_token_of_a_webhook_is_known_for_a_while, _NAME, 4, 20, "an address that was replaced"),
    Mutation(a_filter_by_a_tag_finds_all_projects, _NAME, 4, 20, "a filter finds what fits it"),
    Mutation(a_changed_folder_is_not_told_to_its_agents, _NAME, 14, 20, "a live agent (has|sees) what is stored"),
    Mutation(a_detached_folder_leaves_its_files, _NAME, 21, 40, "rows agree|an agent has the files"),
    Mutation(folders_find_each_other_by_name_in_every_organization, _NAME, 0, 20, "accepted"),
    Mutation(an_upsert_of_an_identity_links_anything, _NAME, 0, 20, "foreign ids link nothing"),
    Mutation(tokens_of_a_user_who_moves_stay, "api-model-of-access", 0, 20, "a credential opens what it is for"),
    Mutation(keys_of_a_user_who_moves_stay, "api-model-of-access", 0, 20, "a credential opens what it is for"),
    Mutation(processor_time_alone_is_not_counted, "api-model-of-limits", 26, 60, "what is permitted runs"),
    Mutation(a_session_lasts_as_long_as_its_key, "dashboard-sessions", 1, 20, "no session outlives its lifetime"),
    Mutation(a_template_that_is_rolled_back_forgets_its_newer_versions, _NAME, 1, 20, "template|" + _SHOWN),
    Mutation(agents_that_leave_a_project_stay_known_to_its_keys, _ACCESS, 0, 30, "a credential opens what it is for"),
    Mutation(a_key_for_a_project_loses_its_own_agents, _ACCESS, 0, 30, "a credential opens what it is for"),
    Mutation(the_last_use_of_a_key_is_its_first, _ACCESS, 0, 30, "a key knows its last use"),
    Mutation(uses_are_written_once_in_the_life_of_a_server, _ACCESS, 0, 30, "a key knows its last use"),
    Mutation(a_token_is_listed_for_its_first_agent_only, _ACCESS, 0, 30, "a filter finds what fits it"),
    Mutation(the_page_after_a_full_one_is_missing, _ACCESS, 0, 30, "the pages of a list are the list"),
    Mutation(a_token_opens_the_last_of_its_agents, _ACCESS, 0, 30, "a credential opens what it is for"),
    Mutation(
        a_token_cannot_be_revoked_by_its_id, _ACCESS, 1, 30, "a credential opens what it is for|shows what was done"
    ),
    Mutation(a_user_who_moves_is_known_for_a_while, _ACCESS, 0, 30, "a credential opens|reaches their own"),
    Mutation(a_user_stays_where_they_are, _ACCESS, 2, 30, "reaches their own|a credential opens|" + _SHOWN),
    Mutation(a_new_organization_has_no_tools, _ACCESS, 0, 30, "a sound request is accepted"),
    Mutation(users_are_listed_without_a_cursor, _ACCESS, 0, 30, "a list ends"),
    Mutation(a_rotation_leaves_out_access_keys, "providers-of-organizations", 0, 20, "every secret uses|reads as it"),
    Mutation(a_rotation_leaves_out_headers, "secrets-under-rotation", 0, 20, "every secret uses|reads as it"),
)
