"""What users of `agentic-learning` do, as a program: `agentic.py ADDRESS MODEL ADDRESS-OF-THE-MODEL`.

The package records calls to a model in the history of an agent, and puts the agent's memory into their prompts. It runs
with that package on its path, so it imports it by name only. What is not as it should be is raised. The model plays the
script that test_python_clients.py gives it.
"""

import asyncio
import sys
from importlib import import_module
from typing import Any

from openai import AsyncOpenAI, OpenAI

NAME = "learner"
HELLO = "Hello from the model"


def recorded(client: Any) -> list[tuple[str, str]]:
    found = client.messages.list(NAME, order="asc")
    said = ("user_message", "assistant_message")
    return [(each.message_type, each.content) for each in found if each.message_type in said]


def learns(learning: Any, client: Any, provider: OpenAI, model: str) -> None:
    with learning(agent=NAME, client=client, memory=["human"]):
        whole = provider.chat.completions.create(model=model, messages=[{"role": "user", "content": "one"}])
        assert whole.choices[0].message.content == HELLO
        user: Any = [{"role": "user", "content": "two"}]
        chunks = list(provider.chat.completions.create(model=model, messages=user, stream=True))
        assert len(chunks) > 2


async def learns_async(package: Any, url: str, provider: AsyncOpenAI, model: str) -> None:
    client = package.AsyncAgenticLearning(base_url=url, api_key="none")
    async with package.learning(agent=NAME, client=client):
        user: Any = [{"role": "user", "content": "three"}]
        await provider.chat.completions.create(model=model, messages=user)
        assert len(await client.agents.list()) == 1


def main(url: str, handle: str, address: str) -> None:
    package: Any = import_module("agentic_learning")
    client = package.AgenticLearning(base_url=url, api_key="none")
    agent = client.agents.create(agent=NAME, memory=["human"], model=handle)
    assert client.agents.retrieve(NAME).id == agent.id and client.agents.retrieve("nobody") is None
    model = handle.partition("/")[2]
    client.memory.create(agent=NAME, label="boats", value="Ada sails")
    assert "Ada sails" in client.memory.context.retrieve(NAME)
    learns(package.learning, client, OpenAI(base_url=address, api_key="k"), model)
    asyncio.run(learns_async(package, url, AsyncOpenAI(base_url=address, api_key="k"), model))
    told = recorded(client)
    assert [words for kind, words in told if kind == "user_message"] == ["one", "two", "three"], told
    assert [words.replace(" ", "") for kind, words in told if kind == "assistant_message"] == [
        HELLO.replace(" ", "")
    ] * 3, told
    answers = client.messages.create(NAME, [{"role": "user", "content": "four"}])
    assert [(each.message_type, each.content) for each in answers] == [("assistant_message", HELLO)]
    assert client.agents.delete(NAME) and client.agents.retrieve(NAME) is None


if __name__ == "__main__":
    main(*sys.argv[1:])
    print("done")
