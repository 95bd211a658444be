"""Drives `maverl serve model` with the clients that programs use, and checks what they make of its answers.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=key python openai_clients.py

The server serves one model, `builtin:tiny` as `tiny`, and accepts the key. Each part prints a line; a failure raises.
"""

import asyncio
import importlib.metadata
import os
import urllib.request

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
BASE = os.environ["OPENAI_BASE_URL"]
KEY = os.environ["OPENAI_API_KEY"]
ASK = [{"role": "user", "content": "Who wrote Magdor?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Searches the documents.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


def version(package):
    return f"{package} {importlib.metadata.version(package)}"


def with_openai():
    import openai

    client = openai.OpenAI()
    models = client.models.list().data
    assert [model.id for model in models] == ["tiny"] and models[0].owned_by == "maverl", models
    assert client.models.retrieve("tiny").id == "tiny"
    said = client.chat.completions.create(
        model="tiny", messages=ASK, max_tokens=16, seed=3, logprobs=True, top_logprobs=2,
        extra_body={"return_token_ids": True},
    )
    choice = said.choices[0]
    assert choice.message.role == "assistant" and isinstance(choice.message.content, str)
    assert choice.finish_reason in ("stop", "length")
    assert len(choice.logprobs.content) == said.usage.completion_tokens
    assert len(choice.logprobs.content[0].top_logprobs) == 2
    assert len(choice.model_extra["token_ids"]) == said.usage.completion_tokens
    assert len(said.model_extra["prompt_token_ids"]) == said.usage.prompt_tokens
    again = client.chat.completions.create(model="tiny", messages=ASK, max_tokens=16, seed=3)
    assert again.choices[0].message.content == choice.message.content
    stream = client.chat.completions.create(
        model="tiny", messages=ASK, max_tokens=16, seed=3, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == choice.message.content, (text, choice.message.content)
    assert chunks[-1].usage.completion_tokens == said.usage.completion_tokens
    with client.chat.completions.stream(model="tiny", messages=ASK, max_tokens=16, seed=3) as helper:
        assert helper.get_final_completion().choices[0].message.content == text
    old = client.completions.create(model="tiny", prompt="Question:", max_tokens=4, logprobs=2, echo=True, seed=1)
    assert old.choices[0].text.startswith("Question:")
    assert old.choices[0].logprobs.token_logprobs[0] is None
    tools = client.chat.completions.create(model="tiny", messages=ASK, tools=[TOOL], max_tokens=16, seed=1)
    assert tools.choices[0].finish_reason in ("stop", "length", "tool_calls")
    structured(client)
    errors(client)
    asyncio.run(leaves())


def structured(client):
    """Replies of a form, which the server enforces."""
    from openai import pydantic_function_tool

    form = answer_form()
    create = {"model": "tiny", "messages": ASK, "max_tokens": 300, "seed": 1}
    parsed = client.chat.completions.parse(**create, response_format=form).choices[0].message.parsed
    assert isinstance(parsed, form) and 1 <= parsed.score <= 5, parsed
    forced = client.chat.completions.parse(**create, tools=[pydantic_function_tool(form)], tool_choice="required")
    assert forced.choices[0].finish_reason == "tool_calls", forced
    assert isinstance(forced.choices[0].message.tool_calls[0].function.parsed_arguments, form)
    response = client.responses.parse(model="tiny", input="Who wrote Magdor?", max_output_tokens=300, text_format=form)
    assert isinstance(response.output_parsed, form), response


def answer_form():
    """A form whose texts are short: a model that knows no words does not end long ones."""
    from typing import Literal

    from pydantic import BaseModel, Field

    class Answer(BaseModel):
        """An answer."""

        text: str = Field(max_length=12)
        score: int = Field(ge=1, le=5)
        kind: Literal["fact", "guess"]

    return Answer


def errors(client):
    import openai

    def raised(kind, call):
        try:
            call()
        except kind as error:
            return error
        raise AssertionError(f"no {kind}")

    create = client.chat.completions.create
    missing = raised(openai.NotFoundError, lambda: create(model="gpt-4", messages=ASK))
    assert missing.code == "model_not_found", missing
    wrong = raised(openai.BadRequestError, lambda: create(model="tiny", messages=ASK, temperature=-1))
    assert wrong.param == "temperature", wrong
    long = raised(openai.BadRequestError, lambda: create(model="tiny", messages=ASK, max_tokens=10**6))
    assert long.code == "context_length_exceeded" and "maximum context length is" in long.message
    other = openai.OpenAI(api_key="another-key", max_retries=0)
    denied = raised(openai.AuthenticationError, lambda: other.models.list())
    assert denied.code == "invalid_api_key", denied


async def leaves():
    """A client that leaves in the middle of a stream."""
    import openai

    client = openai.AsyncOpenAI()
    stream = await client.chat.completions.create(model="tiny", messages=ASK, temperature=3.0, stream=True)
    async for _ in stream:
        break
    await stream.close()
    await client.close()


def with_langchain():
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def search(query: str) -> str:
        """Searches the documents."""
        return query

    chat = ChatOpenAI(model="tiny", max_tokens=16, seed=3)
    whole = chat.invoke([HumanMessage(ASK[0]["content"])])
    assert isinstance(whole.content, str) and whole.usage_metadata["output_tokens"] > 0
    text = "".join(chunk.content for chunk in chat.stream([HumanMessage(ASK[0]["content"])]))
    assert text == whole.content, (text, whole.content)
    asyncio.run(chat.ainvoke("Hello"))
    bound = chat.bind_tools([search]).invoke("Hello")
    assert isinstance(bound.tool_calls, list)
    scored = chat.bind(logprobs=True, top_logprobs=1).invoke("Hello")
    assert scored.response_metadata["logprobs"]["content"]
    form = answer_form()
    for method in ("json_schema", "function_calling"):
        longer = ChatOpenAI(model="tiny", max_tokens=300, seed=3)
        found = longer.with_structured_output(form, method=method).invoke("Who wrote Magdor?")
        assert isinstance(found, form), (method, found)


def with_litellm():
    import litellm

    for prefix in ("openai", "hosted_vllm"):
        args = {"model": f"{prefix}/tiny", "messages": ASK, "max_tokens": 16, "api_base": BASE, "api_key": KEY}
        whole = litellm.completion(**args, seed=3)
        assert whole.choices[0].finish_reason in ("stop", "length")
        parts = litellm.completion(**args, seed=3, stream=True)
        text = "".join(part.choices[0].delta.content or "" for part in parts)
        assert text == (whole.choices[0].message.content or ""), (text, whole)
        try:
            litellm.completion(**{**args, "max_tokens": 10**6})
        except litellm.ContextWindowExceededError:
            pass
        else:
            raise AssertionError("no ContextWindowExceededError")
        form = answer_form()
        held = litellm.completion(**{**args, "max_tokens": 300}, seed=3, response_format=form)
        form.model_validate_json(held.choices[0].message.content)


def with_agents():
    import agents
    import openai

    @agents.function_tool
    def search(query: str) -> str:
        """Searches the documents."""
        return query

    agents.set_tracing_disabled(True)

    async def both(seed):
        settings = agents.ModelSettings(temperature=1.0, max_tokens=64, include_usage=True, extra_body={"seed": seed})
        agent = agents.Agent(name="a", instructions="Be brief.", model="tiny", model_settings=settings, tools=[search])
        done = await agents.Runner.run(agent, ASK[0]["content"], max_turns=3)
        assert isinstance(done.final_output, str)
        assert done.context_wrapper.usage.output_tokens > 0
        running = agents.Runner.run_streamed(agent, ASK[0]["content"], max_turns=3)
        async for _ in running.stream_events():
            pass
        assert isinstance(running.final_output, str)

    form = answer_form()

    async def of_a_form():
        settings = agents.ModelSettings(max_tokens=300, extra_body={"seed": 1})
        agent = agents.Agent(name="a", model="tiny", model_settings=settings, output_type=form)
        assert isinstance((await agents.Runner.run(agent, ASK[0]["content"])).final_output, form)

    # A client of asyncio belongs to one loop.
    for api in ["responses", "chat_completions"]:
        agents.set_default_openai_api(api)
        for seed in range(50):
            agents.set_default_openai_client(openai.AsyncOpenAI(), use_for_tracing=False)
            try:
                asyncio.run(both(seed))
                break
            except agents.ModelBehaviorError as error:  # with responses, a reply that was truncated raises
                assert "max_output_tokens" in str(error), error
        else:
            raise AssertionError("no reply ends by itself")
        agents.set_default_openai_client(openai.AsyncOpenAI(), use_for_tracing=False)
        asyncio.run(of_a_form())


def metrics():
    from prometheus_client.parser import text_string_to_metric_families

    request = urllib.request.Request(BASE[: -len("/v1")] + "/metrics", headers={"authorization": "Bearer " + KEY})
    with urllib.request.urlopen(request) as answer:
        families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    assert sum(sample.value for sample in families["maverl_requests"].samples if sample.name.endswith("_total")) > 10
    assert families["maverl_request_seconds"].type == "histogram"
    assert families["maverl_kv_blocks"].type == "gauge"


if __name__ == "__main__":
    for part, package in [
        (with_openai, "openai"),
        (with_langchain, "langchain-openai"),
        (with_litellm, "litellm"),
        (with_agents, "openai-agents"),
        (metrics, "prometheus-client"),
    ]:
        part()
        print(f"{version(package)}: good", flush=True)
