"""Planted bugs in records of every kind, which the model of records notices.

`tests/sim/mutations.py` has the others, and describes how they are used.
"""

import sys
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from kelpie.accounts import authentication
from kelpie.accounts.identities import Identities
from kelpie.agent.resources import groups
from kelpie.core.permissions.quotas import Quota
from kelpie.files.folders import Folders
from kelpie.server.letta.schedules import routes as schedule_routes
from kelpie.storage import providers
from kelpie.storage.accounts import accounts
from kelpie.storage.agents import identities, projects
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


_NAME = "api-model-of-records"
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
)
