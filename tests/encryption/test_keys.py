"""Encryption at rest with a real database: what is stored, what a start checks, and what a rotation leaves."""

import base64
import re
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from kelpie.app import Kelpie
from kelpie.core.agents.agent import EVERYTHING, AgentQuery, NewAgent
from kelpie.core.errors import ConfigurationError, Conflict, ToolError
from kelpie.core.ids import AgentId
from kelpie.core.models.model_providers import ProviderAccess
from kelpie.core.paging import Page
from kelpie.core.settings.settings import Settings
from kelpie.core.tools.mcp_servers import McpConfig, McpServerType
from kelpie.core.tools.sandbox_configs import SandboxType
from kelpie.encryption import rotation
from kelpie.local import open_kelpie
from kelpie.server.app import create_app
from kelpie.storage import migrations, providers, schema
from kelpie.storage.encryption import columns
from kelpie.storage.encryption.sealing import Sealing
from kelpie.storage.tables import metadata
from kelpie.storage.tools import mcp_oauth
from kelpie.tools.custom.tool_environment import tool_environment
from kelpie.world.sqlite.connections import engine_for, writer_connection

WORDS = ("AGENTSECRET", "ORGVARIABLE", "MCPTOKEN", "MCPHEADER", "MCPENV")
STDIO = McpConfig(McpServerType.stdio, command="x", env={"K": "MCPENV"})
REMOTE = McpConfig(
    McpServerType.sse, server_url="https://mcp.example", token="MCPTOKEN", custom_headers={"X": "MCPHEADER"}
)
KEY_A, KEY_B = (base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2))


@asynccontextmanager
async def running(directory: Path, **settings: str) -> AsyncIterator[Kelpie]:
    kelpie = open_kelpie(Settings(data_dir=str(directory), default_model="kelpie/demo", port=0, **settings))  # type: ignore
    try:
        await kelpie.start()
        yield kelpie
    finally:
        await kelpie.stop(0.0)


async def furnish(kelpie: Kelpie) -> AgentId:
    api = kelpie.api()
    agent = await api.agents.create(NewAgent(secrets={"TOKEN": "AGENTSECRET"}))
    config = await api.sandbox_configs.ensure(SandboxType.local, {})
    await api.sandbox_configs.add_variable(config.id, "VARIABLE", "ORGVARIABLE", None)
    await api.mcp_servers.create("stdio", STDIO)
    await api.mcp_servers.create("remote", REMOTE)
    return agent.agent.id


async def shown(kelpie: Kelpie) -> set[str]:
    """Every secret that the server reads back."""
    api = kelpie.api()
    agents = await api.agents.page(AgentQuery(show_hidden=True), EVERYTHING)
    config = await api.sandbox_configs.ensure(SandboxType.local, {})
    found = {secret.value for view in agents for secret in view.secrets}
    found |= {each.value for each in await api.sandbox_configs.variables(config.id, Page())}
    for server in await api.mcp_servers.all():
        pairs = {**(server.config.env or {}), **(server.config.custom_headers or {})}
        found |= {*pairs.values(), server.config.token or ""} - {""}
    return found


def stored(directory: Path) -> list[str]:
    """Every stored secret."""
    with closing(sqlite3.connect(directory / "kelpie.db")) as database:
        return [
            row[0]
            for one in columns.ENCRYPTED
            for name in one.columns
            for row in database.execute(f"SELECT {name} FROM {one.table.name} WHERE {name} IS NOT NULL")
        ]


def on_disk(directory: Path) -> set[tuple[str, str]]:
    """The files beside the database that hold a secret as plain text."""
    files = [file for file in directory.rglob("*") if file.is_file()]
    return {(file.name, word) for file in files for word in WORDS if word.encode() in file.read_bytes()}


def open_to_others(directory: Path, names: Sequence[str]) -> None:
    directory.chmod(0o755)
    for name in names:
        (directory / name).touch()
        (directory / name).chmod(0o644)


def modes_for_others(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o077 for path in (directory, *directory.iterdir())}


def key_file(directory: Path) -> Path:
    return directory / "keys" / "encryption.key"


async def test_nothing_is_on_the_disk_and_everything_is_read_back(tmp_path: Path) -> None:
    async with running(tmp_path) as kelpie:
        agent_id = await furnish(kelpie)
        assert await shown(kelpie) == set(WORDS)
        assert not on_disk(tmp_path)
        secret_key = key_file(tmp_path).read_text().splitlines()[-1]
        assert secret_key.encode() not in (tmp_path / "kelpie.db").read_bytes()
    assert len(stored(tmp_path)) == 5
    async with running(tmp_path) as kelpie:
        assert await shown(kelpie) == set(WORDS)
        agent = (await kelpie.api().agents.get(agent_id)).agent
        env = await kelpie.world.database.read(lambda tx: tool_environment(tx, agent, False, kelpie.world.keyring))
        assert env.env == {"TOKEN": "AGENTSECRET", "VARIABLE": "ORGVARIABLE"}


async def test_the_files_of_a_server_are_closed_to_others_whatever_they_were(tmp_path: Path) -> None:
    open_to_others(tmp_path, ("kelpie.db", "notes.txt"))
    async with running(tmp_path):
        modes = modes_for_others(tmp_path)
    assert {"kelpie.db", "kelpie.db-wal", "kelpie.db-shm", "keys", "kelpie.lock", "kelpie.pid"} <= set(modes)
    assert not any(modes.values()), modes


async def test_a_rotation_encrypts_everything_again_and_removes_the_old_key(tmp_path: Path) -> None:
    async with running(tmp_path) as kelpie:
        await furnish(kelpie)
        before, old = stored(tmp_path), key_file(tmp_path).read_text()
        status = await kelpie.runtime.key_rotation.rotate()
        with pytest.raises(Conflict, match="is running"):
            await kelpie.runtime.key_rotation.rotate()
        assert status.rotating
        status = await kelpie.runtime.key_rotation.status(30.0)
        assert not status.rotating and len(status.keys) == 1 and not status.unreadable
        assert await shown(kelpie) == set(WORDS)
        after = stored(tmp_path)
    assert not set(before) & set(after) and all(status.keys[0].id in each for each in after)
    assert not set(old.splitlines()[1:]) & set(key_file(tmp_path).read_text().splitlines())
    async with running(tmp_path) as kelpie:
        assert await shown(kelpie) == set(WORDS)


async def test_a_rotation_that_was_cut_off_goes_on_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as kelpie:
        await furnish(kelpie)
        with monkeypatch.context() as patch:
            patch.setattr(rotation.KeyRotation, "_finished", _never)  # a server that was killed after the key changed
            await kelpie.runtime.key_rotation.rotate()
    assert len(key_file(tmp_path).read_text().splitlines()) == 3, "the old key is there while secrets use it"
    async with running(tmp_path) as kelpie:
        status = await kelpie.runtime.key_rotation.status(30.0)
        assert not status.rotating and len(status.keys) == 1
        assert await shown(kelpie) == set(WORDS)
    assert len(key_file(tmp_path).read_text().splitlines()) == 2


async def test_a_rotation_leaves_out_no_column(tmp_path: Path) -> None:
    """Every stored secret is found by what it looks like, wherever it is."""
    async with running(tmp_path) as kelpie:
        await furnish(kelpie)
        remote = await kelpie.api().mcp_servers.by_name("remote")
        database, keyring, ids = kelpie.world.database, kelpie.world.keyring, kelpie.world.ids
        sealing = Sealing(keyring, ids.secret())
        await database.transact(lambda tx: mcp_oauth.put(tx, remote.id, "OAUTHTOKENS", None, 1, sealing))
        access = ProviderAccess("openai", "APIKEY", "ACCESSKEY", "http://127.0.0.1:9/v1")
        made = replace(kelpie.api().providers._record("mine", ProviderAccess("openai", "APIKEY")), access=access)
        await database.transact(lambda tx: providers.insert(tx, made, sealing))
        before = sealed(tmp_path)
        assert {where for where, _ in before} == {
            *("agent_secrets.value", "sandbox_variables.value", "mcp_servers.env", "mcp_servers.token"),
            *("mcp_servers.custom_headers", "mcp_oauth.tokens", "providers.api_key", "providers.access_key"),
        }
        await kelpie.runtime.key_rotation.rotate()
        status = await kelpie.runtime.key_rotation.status(30.0)
        assert not status.rotating and len(status.keys) == 1
        assert sealed(tmp_path) == {(where, status.keys[0].id) for where, _ in before}
        assert await shown(kelpie) == set(WORDS)
        assert await database.read(lambda tx: mcp_oauth.get(tx, remote.id, keyring)) == "OAUTHTOKENS"
        assert (await kelpie.api().providers.get(made.id)).access == access


def sealed(directory: Path) -> set[tuple[str, str]]:
    """The columns that hold ciphertexts, whatever is known of them, and the ids of their keys."""
    with closing(sqlite3.connect(directory / "kelpie.db")) as database:
        found = [
            (f"{table.name}.{column.name}", row[0])
            for table in metadata.sorted_tables
            for column in table.columns
            if isinstance(column.type, sa.Text | sa.JSON)
            for row in database.execute(f"SELECT {column.name} FROM {table.name} WHERE {column.name} LIKE '%1:%'")
        ]
    matches = [(where, re.match(r'"?1:([0-9a-f]{16}):', text)) for where, text in found]
    return {(where, match[1]) for where, match in matches if match}


async def test_what_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    async with running(tmp_path) as kelpie:
        agent_id = await furnish(kelpie)
        lost = kelpie.world.keyring.ids[0]
    key_file(tmp_path).unlink()
    async with running(tmp_path, encryption_key_lost=lost) as kelpie:
        first = await kelpie.runtime.key_rotation.status(30.0)
        await kelpie.api().agents.update(agent_id, {"secrets": {"TOKEN": "NEW"}})
        await kelpie.runtime.key_rotation.rotate()
        second = await kelpie.runtime.key_rotation.status(30.0)
    assert len(first.unreadable) == 5 and not second.rotating
    assert sorted(map(str, second.unreadable)) == sorted(
        str(each) for each in first.unreadable if each.table != "agent_secrets"
    )


async def _never(self: object) -> bool:
    return False


async def test_a_missing_or_wrong_key_keeps_the_server_from_starting(tmp_path: Path) -> None:
    async with running(tmp_path) as kelpie:
        await furnish(kelpie)
        key_id = kelpie.world.keyring.ids[0]
    kept = key_file(tmp_path).read_text()
    key_file(tmp_path).unlink()
    with pytest.raises(ConfigurationError, match=rf"{key_id}.*holds no key; restore that key.*KEY_LOST={key_id}"):
        async with running(tmp_path):
            pass
    assert not key_file(tmp_path).exists(), "no new key hides the loss"
    with pytest.raises(ConfigurationError, match=rf"encrypted with the key {key_id}, but the setting .* holds only"):
        async with running(tmp_path, encryption_key=KEY_A):
            pass
    key_file(tmp_path).write_text(kept)
    async with running(tmp_path) as kelpie:
        assert await shown(kelpie) == set(WORDS)


async def test_a_lost_key_is_given_up_on_purpose_and_found_again(tmp_path: Path) -> None:
    async with running(tmp_path) as kelpie:
        agent_id = await furnish(kelpie)
        lost = kelpie.world.keyring.ids[0]
    kept = key_file(tmp_path).read_text()
    key_file(tmp_path).unlink()
    async with running(tmp_path, encryption_key_lost=lost) as kelpie:
        api = kelpie.api()
        view = await api.agents.get(agent_id)
        assert view.secrets[0].value == "" and f"its key {lost} is missing" in (view.secrets[0].unreadable or "")
        with pytest.raises(ToolError, match=f"TOKEN|key {lost} is missing"):
            await kelpie.world.database.read(lambda tx: tool_environment(tx, view.agent, False, kelpie.world.keyring))
        remote = await api.mcp_servers.by_name("remote")
        assert remote.config.token is None and set(remote.unreadable) == {"token", "custom_headers"}
        with pytest.raises(Conflict, match=r"custom_headers: .*set it in this request"):
            await api.mcp_servers.update(remote.id, "renamed", lambda config: config)
        transport = httpx.ASGITransport(create_app(kelpie))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8283") as client:
            shown_agent = (await client.get(f"/v1/agents/{agent_id}?include=agent.secrets")).json()
            shown_server = (await client.get(f"/v1/mcp-servers/{remote.id}")).json()
            status_page = (await client.get("/v1/kelpie/encryption?wait_s=30")).json()
        assert shown_agent["secrets"][0]["value"] == "" and lost in shown_agent["secrets"][0]["kelpie_error"]
        assert shown_server["auth_token"] is None and "mcp_servers.token" in shown_server["kelpie_error"]
        assert status_page["unreadable_count"] == 5 and not status_page["rotating"]
        await api.agents.update(agent_id, {"secrets": {"TOKEN": "NEW"}})
        assert (await api.agents.get(agent_id)).secrets[0].value == "NEW"
        status = await kelpie.runtime.key_rotation.status(30.0)
        assert len(status.unreadable) == 5 and [key.lost for key in status.keys] == [True, False]
    async with running(tmp_path):
        pass  # it is remembered
    key_file(tmp_path).write_text(key_file(tmp_path).read_text() + kept.splitlines()[-1] + "\n")
    async with running(tmp_path) as kelpie:
        status = await kelpie.runtime.key_rotation.status(30.0)
        assert len(status.keys) == 1
        assert await shown(kelpie) == {"NEW", *WORDS} - {"AGENTSECRET"}


async def test_a_key_in_a_setting_is_rotated_by_the_operator(tmp_path: Path) -> None:
    async with running(tmp_path, encryption_key=KEY_A) as kelpie:
        await furnish(kelpie)
        with pytest.raises(Conflict, match=r"KELPIE_ENCRYPTION_KEY\. Put the new key there before the old one"):
            await kelpie.runtime.key_rotation.rotate()
    assert not key_file(tmp_path).exists()
    async with running(tmp_path, encryption_key=f"{KEY_B},{KEY_A}") as kelpie:
        assert not (await kelpie.runtime.key_rotation.status(30.0)).rotating
    async with running(tmp_path, encryption_key=KEY_B) as kelpie:
        assert await shown(kelpie) == set(WORDS)


async def test_a_secret_that_was_moved_to_another_row_is_not_shown(tmp_path: Path) -> None:
    async with running(tmp_path) as kelpie:
        api = kelpie.api()
        one = await api.agents.create(NewAgent(secrets={"A": "AGENTSECRET"}))
        two = await api.agents.create(NewAgent(secrets={"A": "other"}))
        swap = (
            "UPDATE agent_secrets SET value = (SELECT value FROM agent_secrets WHERE agent_id = ?) WHERE agent_id = ?"
        )
        await kelpie.world.database.transact(lambda tx: tx.exec_driver_sql(swap, (one.agent.id, two.agent.id)))
        found = (await api.agents.get(two.agent.id)).secrets[0]
        assert found.value == "" and "changed or moved" in (found.unreadable or "")


async def test_a_database_of_an_older_kelpie_is_encrypted_at_its_first_start(tmp_path: Path) -> None:
    """With more rows than one batch takes, and with a value that looks like a ciphertext."""
    lookalike, count = "1:0123456789abcdef:AAAA", columns.BATCH_ROWS * 2 + 1
    with closing(writer_connection(engine_for(str(tmp_path / "kelpie.db")), "OFF")) as old:
        migrations.upgrade(old, schema.REVISIONS.locations, "0001")
        _old_rows(old, lookalike, count)
        old.commit()
    async with running(tmp_path) as kelpie:
        assert await shown(kelpie) == {*WORDS, lookalike, *(f"value {number}" for number in range(count))}
        assert not (await kelpie.runtime.key_rotation.status()).rotating
        found = on_disk(tmp_path)
    assert {name for name, _ in found} == {"kelpie.db.schema-0001.backup"}, "the backup is as it was"
    assert all("1:" in each for each in stored(tmp_path)) and len(stored(tmp_path)) == count + 6
    async with running(tmp_path) as kelpie:
        assert lookalike in await shown(kelpie)


def _old_rows(old, lookalike: str, count: int) -> None:
    org = "org-00000000-0000-4000-8000-000000000000"
    agent = f"agent-{UUID % 0}"
    schema_of_agents = old.exec_driver_sql("PRAGMA table_info(agents)").all()
    values = {row[1]: _zero(row[2]) for row in schema_of_agents if row[3]}
    values |= {"id": agent, "organization_id": org, "name": "old", "agent_type": "letta_v1_agent", "timezone": "UTC"}
    values |= {"model": '{"handle": "kelpie/demo", "context_window": 32000}', "tool_rules": "[]"}
    names = ", ".join(values)
    old.exec_driver_sql(f"INSERT INTO agents ({names}) VALUES ({', '.join('?' * len(values))})", tuple(values.values()))
    secrets = {"A": "AGENTSECRET", "B": lookalike} | {f"K{number}": f"value {number}" for number in range(count)}
    for number, (key, value) in enumerate(secrets.items()):
        row = (f"agent-env-{UUID % number}", agent, key, value)
        old.exec_driver_sql("INSERT INTO agent_secrets VALUES (?, ?, ?, ?, NULL, 1, 1)", row)
    config = f"sandbox-{UUID % 1}"
    old.exec_driver_sql("INSERT INTO sandbox_configs VALUES (?, ?, 'local', '{}', NULL, NULL, 1, 1)", (config, org))
    row = (f"sandbox-env-{UUID % 1}", org, config, "VARIABLE", "ORGVARIABLE")
    old.exec_driver_sql("INSERT INTO sandbox_variables VALUES (?, ?, ?, ?, ?, NULL, NULL, NULL, 1, 1)", row)
    for number, (kind, env, token, headers) in enumerate(
        (("stdio", '{"K": "MCPENV"}', None, None), ("sse", None, "MCPTOKEN", '{"X": "MCPHEADER"}'))
    ):
        row = (f"mcp_server-{UUID % number}", org, f"s{number}", kind, env, token, headers)
        old.exec_driver_sql(
            "INSERT INTO mcp_servers (id, organization_id, server_name, server_type, args, env, token, custom_headers,"
            " created_at, updated_at) VALUES (?, ?, ?, ?, '[]', ?, ?, ?, 1, 1)",
            row,
        )


UUID = "00000000-0000-4000-8000-%012d"


def _zero(kind: str) -> object:
    return "" if kind in ("TEXT", "JSON") else 0
