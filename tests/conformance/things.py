"""What a call needs to be there before it: made over plain HTTP, new each time unless it takes a turn to make."""

import time
import uuid
from functools import cached_property
from typing import Any

import httpx

from tests.provider_server import KEY

SOURCE = '''
def shout(text: str) -> str:
    """Says it loudly.

    Args:
        text (str): What to say.
    """
    return text.upper()
'''
MODEL = "kelpie/demo"
STDIO = {"mcp_server_type": "stdio", "command": "true", "args": []}


class Things:
    def __init__(self, url: str, mcp_url: str = "", provider_url: str = "https://models.invalid/v1") -> None:
        """`mcp_url` is the address of an MCP server that can be reached, `provider_url` that of a model provider."""
        self.mcp_url = mcp_url
        self.provider_url = provider_url
        self.http = httpx.Client(
            base_url=url, timeout=60, trust_env=False, headers={"user-agent": "letta-client/1.12.1"}
        )

    def call(self, method: str, path: str, **fields: Any) -> Any:
        answer = self.http.request(method, path, **fields)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    @staticmethod
    def word() -> str:
        return f"w{uuid.uuid4().hex[:10]}"

    def agent(self, **fields: Any) -> str:
        blocks = [{"label": "human", "value": "Ann"}, {"label": "persona", "value": "Kind."}]
        body = {"name": self.word(), "model": MODEL, "memory_blocks": blocks, **fields}
        return self.call("POST", "/v1/agents/", json=body)["id"]

    def folder(self) -> str:
        return self.call("POST", "/v1/folders/", json={"name": self.word()})["id"]

    def file(self) -> tuple[str, str]:
        """A folder and a file in it, which is processed."""
        folder = self.folder()
        content = {"file": ("notes.txt", b"Tea at four.\n", "text/plain")}
        file = self.call("POST", f"/v1/folders/{folder}/upload", files=content)["id"]
        deadline = time.monotonic() + 60
        while self.call("GET", f"/v1/folders/{folder}/files/{file}")["processing_status"] != "completed":
            assert time.monotonic() < deadline, "the file was not processed"
            time.sleep(0.05)
        return folder, file

    def agent_with_folder(self) -> tuple[str, str]:
        folder = self.folder()
        return self.agent(folder_ids=[folder]), folder

    def agent_with_file(self) -> tuple[str, str]:
        folder, file = self.file()
        return self.agent(folder_ids=[folder]), file

    def block(self, **fields: Any) -> str:
        return self.call("POST", "/v1/blocks/", json={"label": self.word(), "value": "v", **fields})["id"]

    def agent_with_block(self) -> tuple[str, str]:
        block = self.block()
        return self.agent(block_ids=[block]), block

    def tool(self) -> str:
        return self.call("POST", "/v1/tools/", json={"source_code": SOURCE.replace("shout", self.word())})["id"]

    def agent_with_tool(self) -> tuple[str, str]:
        tool = self.tool()
        return self.agent(tool_ids=[tool]), tool

    def template(self) -> str:
        """The name of a template with a variable and two versions."""
        name, agent = self.word(), self.agent(memory_blocks=[{"label": "human", "value": "Name: {{name}}"}])
        self.call("POST", "/v1/templates", json={"type": "agent", "agent_id": agent, "name": name})
        self.call("POST", f"/v1/templates/{name}/save", json={})
        return name

    def schedule(self) -> dict[str, str]:
        """The ids of a schedule and of its agent, as the SDK calls them."""
        agent = self.agent()
        body = {"message": "hi", "recurrence_rule": "0 9 * * *"}
        made = self.call("POST", f"/v1/agents/{agent}/schedule", json=body)
        return {"agent_id": agent, "scheduled_message_id": made["id"]}

    def exported(self) -> dict[str, Any]:
        return self.call("GET", f"/v1/agents/{self.agent()}/export")

    def provider_body(self) -> dict[str, Any]:
        return {"provider_type": "openai", "api_key": KEY, "base_url": self.provider_url}

    def provider(self) -> str:
        return self.call("POST", "/v1/providers/", json={"name": self.word(), **self.provider_body()})["id"]

    def archive(self) -> str:
        return self.call("POST", "/v1/archives/", json={"name": self.word()})["id"]

    def agent_with_archive(self) -> tuple[str, str]:
        agent, archive = self.agent(), self.archive()
        self.call("PATCH", f"/v1/agents/{agent}/archives/attach/{archive}")
        return agent, archive

    def passage(self) -> tuple[str, str]:
        archive = self.archive()
        made = self.call("POST", f"/v1/archives/{archive}/passages", json={"text": "rain in Spain"})
        return archive, made["id"]

    def agent_passage(self) -> tuple[str, str]:
        agent = self.agent()
        return agent, self.call("POST", f"/v1/agents/{agent}/archival-memory", json={"text": "rain in Spain"})[0]["id"]

    def identity(self) -> str:
        return self.call("POST", "/v1/identities/", json=self.new_identity())["id"]

    def new_identity(self) -> dict[str, Any]:
        return {"identifier_key": self.word(), "name": "Ann", "identity_type": "user"}

    def fork(self) -> str:
        """A conversation in which something was said."""
        return self.call("POST", "/v1/conversations/default/fork", params={"agent_id": self.talked.agent})["id"]

    def conversation(self) -> str:
        return self.call("POST", "/v1/conversations/", params={"agent_id": self.agent()}, json={})["id"]

    def group(self) -> str:
        return self.call("POST", "/v1/groups/", json={"agent_ids": [self.agent()], "description": "Two of us."})["id"]

    def mcp_server(self) -> str:
        return self.call("POST", "/v1/mcp-servers/", json={"server_name": self.word(), "config": STDIO})["id"]

    def mcp_tool(self) -> tuple[str, str]:
        """An MCP server that answers, and a tool of it."""
        config = {"mcp_server_type": "streamable_http", "server_url": self.mcp_url}
        server = self.call("POST", "/v1/mcp-servers/", json={"server_name": self.word(), "config": config})["id"]
        return server, self.call("GET", f"/v1/mcp-servers/{server}/tools")[0]["id"]

    def mcp_server_named(self) -> tuple[str, str]:
        """The name of an MCP server that answers, and that of a tool of it."""
        server, tool = self.mcp_tool()
        name = self.call("GET", f"/v1/mcp-servers/{server}")["server_name"]
        return name, self.call("GET", f"/v1/mcp-servers/{server}/tools/{tool}")["name"]

    def old_mcp_server(self) -> str:
        name = self.word()
        self.call(
            "PUT", "/v1/tools/mcp/servers", json={"server_name": name, "type": "stdio", "command": "true", "args": []}
        )
        return name

    def sandbox(self) -> str:
        return self.call("POST", "/v1/sandbox-config/local/default")["id"]

    def sandbox_variable(self) -> str:
        body = {"key": self.word(), "value": "v"}
        return self.call("POST", f"/v1/sandbox-config/{self.sandbox()}/environment-variable", json=body)["id"]

    def organization(self) -> str:
        return self.call("POST", "/v1/admin/orgs/", json={"name": self.word()})["id"]

    def user(self) -> str:
        body = {"name": self.word(), "organization_id": self.organization()}
        return self.call("POST", "/v1/admin/users/", json=body)["id"]

    def token(self, agent: str) -> dict[str, Any]:
        policy = [{"type": "agent", "id": agent, "access": ["read_messages"]}]
        return self.call(
            "POST", "/v1/client-side-access-tokens", json={"hostname": "https://a.example", "policy": policy}
        )

    def busy(self) -> str:
        """An agent in the middle of a turn; nobody reads what it says."""
        agent = self.agent()
        body = {"input": '!script [{"text": "late", "wait_s": 30}]'}
        self.http.send(self.http.build_request("POST", f"/v1/agents/{agent}/messages/stream", json=body), stream=True)
        return agent

    def behind(self, text: str = "hello") -> str:
        """A run in the background."""
        return self.call("POST", f"/v1/agents/{self.agent()}/messages/async", json={"input": text})["id"]

    def slow_conversation(self) -> str:
        """A conversation with a background run under way; nobody reads what it says."""
        conversation = self.conversation()
        body = {"input": '!script [{"text": "late", "wait_s": 1}]', "background": True}
        path = f"/v1/conversations/{conversation}/messages"
        self.http.send(self.http.build_request("POST", path, json=body), stream=True)
        return conversation

    @cached_property
    def talked(self) -> "Talked":
        """An agent that had a turn."""
        agent = self.agent()
        self.call("POST", f"/v1/agents/{agent}/messages", json={"input": "Remember that I like rain"})
        run = self.call("GET", "/v1/runs/", params={"agent_id": agent})[0]["id"]
        step = self.call("GET", f"/v1/runs/{run}/steps")[0]["id"]
        message = self.call("GET", f"/v1/agents/{agent}/messages")[-1]["id"]
        return Talked(agent, run, step, message)


class Talked:
    def __init__(self, agent: str, run: str, step: str, message: str) -> None:
        self.agent, self.run, self.step, self.message = agent, run, step, message
