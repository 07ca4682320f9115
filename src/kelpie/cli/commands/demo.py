"""`kelpie demo`: a demo agent, created if it does not exist, and the commands to try with it."""

import os
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from kelpie.cli.output import say
from kelpie.world.http.cli_client import Client

NAME = "demo"
_PORT = "KELPIE_PORT"
_FOR_ALL = {"--config": "config", "--data-dir": "data_dir", "--url": "url"}  # options that stand before the command
_NEW = {
    "name": NAME,
    "model": "kelpie/demo",
    "description": "Demo agent of Kelpie. Its model is a script and needs no API key.",
    "memory_blocks": [
        {"label": "human", "value": "Nothing is known about this person yet."},
        {"label": "persona", "value": "I am the demo agent of Kelpie. I answer briefly and I remember what I am told."},
    ],
}


def demo(client: Client, given: Mapping[str, str | None]) -> int:
    """Creates the demo agent if there is none and prints what to try, with the options `given` before the command.
    Raises Unreachable or ErrorResponse.
    """
    found = client.get("/v1/agents/", name=NAME, limit=1)
    agent = found[0] if found else client.post("/v1/agents/", _NEW)
    say(what_to_try(client.base_url, agent, command(given), asks=client.credential is not None))
    return 0


def what_to_try(url: str, agent: dict[str, Any], kelpie: str, *, asks: bool = False) -> str:
    """Commands that work right now, ready to be copied; with a key from the environment if the server asks for one."""
    agent_id = agent["id"]
    header = '-H "Authorization: Bearer $KELPIE_API_KEY" \\\n    ' if asks else ""
    python_key = ', api_key=os.environ["KELPIE_API_KEY"]' if asks else ""
    python_import = "import os\n  " if asks else ""
    port = f" --port {os.environ[_PORT]}" if os.environ.get(_PORT) else ""  # set for this command, not for the next
    return f"""
Open the dashboard in a browser:
  {url}/

Chat with the agent {agent["name"]} ({agent_id}) in this terminal:
  {kelpie} chat {agent["name"]}

Over HTTP:
  curl -s {url}/v1/agents/{agent_id}/messages \\
    {header}-H 'Content-Type: application/json' -d '{{"input": "Hello!"}}'

From Python (pip install letta-client==1.12.1):
  {python_import}from letta_client import Letta
  client = Letta(base_url="{url}"{python_key})
  reply = client.agents.messages.create("{agent_id}", messages=[{{"role": "user", "content": "Hello!"}}])
  print(reply.messages[-1].content)

Use a real model (docs/models.md): set OPENAI_API_KEY or another key, or start
Ollama. Then:
  {kelpie} server restart{port}
  {kelpie} agents create NAME

Stop the server:
  {kelpie} server stop"""


def command(given: Mapping[str, str | None]) -> str:
    """The way to call this program again: by name where the PATH has it, else as it was called now, for the same
    server.
    """
    directory, name = os.path.split(sys.argv[0])
    program = name if directory in os.environ.get("PATH", "").split(os.pathsep) else sys.argv[0]
    options = [part for option, name in _FOR_ALL.items() if (value := given.get(name)) for part in (option, value)]
    return shlex.join((program, *options))
