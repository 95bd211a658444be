"""Drives `maverl serve model` with the package `anthropic`, and checks what it makes of the answers.

    ANTHROPIC_BASE_URL=http://127.0.0.1:8000 ANTHROPIC_API_KEY=key python anthropic_clients.py

The server serves one model, `builtin:tiny` as `tiny`, and accepts the key. Each part prints a line; a failure raises. With the
argument `busy`, the server answers one request at a time and lets none wait.
"""

import importlib.metadata
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import anthropic

ASK = [{"role": "user", "content": "Who wrote Magdor?"}]
TOOL = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 99}},
        "required": ["a"],
        "additionalProperties": False,
    },
}
SEED = {"seed": 3, "return_token_ids": True}


def whole_and_streamed(client):
    create = {"model": "tiny", "max_tokens": 16, "messages": ASK, "system": "Be brief.", "extra_body": SEED}
    said = client.messages.create(**create)
    assert said.type == "message" and said.role == "assistant" and said.content[0].type == "text", said
    assert said.stop_reason in ("end_turn", "max_tokens"), said
    origin = said.model_extra["maverl"]
    assert origin["seed"] == 3 and len(origin["token_ids"]) == said.usage.output_tokens, said
    with client.messages.stream(**create) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == said.content[0].text == final.content[0].text, (text, said)
    assert final.stop_reason == said.stop_reason and final.usage.output_tokens == said.usage.output_tokens
    assert final.model_extra["maverl"]["seed"] == 3, final
    kinds = [event.type for event in client.messages.create(**create, stream=True)]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds
    counted = client.messages.count_tokens(model="tiny", messages=ASK, system="Be brief.")
    cached = said.usage.cache_read_input_tokens
    assert counted.input_tokens == said.usage.input_tokens + cached == len(origin["prompt_token_ids"])


def tools_both_ways(client):
    create = {"model": "tiny", "max_tokens": 120, "tools": [TOOL], "extra_body": {"seed": 4}}
    said = client.messages.create(**create, messages=ASK, tool_choice={"type": "tool", "name": "add"})
    call = said.content[-1]
    assert said.stop_reason == "tool_use" and call.type == "tool_use" and isinstance(call.input["a"], int), said
    with client.messages.stream(**create, messages=ASK, tool_choice={"type": "any"}) as stream:
        assert stream.get_final_message().content[-1].input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "3"}], "is_error": False}
    messages = [*ASK, {"role": "assistant", "content": said.content}, {"role": "user", "content": [result]}]
    after = client.messages.create(**create, messages=messages)
    assert after.content and after.stop_reason in ("end_turn", "max_tokens", "tool_use"), after


def errors(client):
    def raised(kind, call):
        try:
            call()
        except kind as error:
            assert error.body["type"] == "error" and error.body["error"]["message"], error.body
            return error
        raise AssertionError(f"no {kind}")

    create = client.messages.create
    wrong = raised(anthropic.BadRequestError, lambda: create(model="tiny", max_tokens=4, messages=ASK, extra_body={"temperature": -1}))
    assert "`temperature`" in str(wrong), wrong
    long = [{"role": "user", "content": "city " * 2000}]
    long = raised(anthropic.BadRequestError, lambda: create(model="tiny", max_tokens=4, messages=long))
    assert "prompt is too long" in str(long), long
    raised(anthropic.NotFoundError, lambda: create(model="claude-4", max_tokens=4, messages=ASK))
    other = anthropic.Anthropic(api_key="another-key", max_retries=0)
    raised(anthropic.AuthenticationError, lambda: other.models.list())


def busy():
    """Sixteen requests at once: those that find the server busy raise, and the client's own retries bring all to their end."""
    with ThreadPoolExecutor(16) as pool:

        def ask(retries):
            client = anthropic.Anthropic(max_retries=retries)
            try:
                return client.messages.create(model="tiny", max_tokens=100, messages=ASK).type
            except anthropic.RateLimitError as error:
                assert error.status_code == 429 and error.body["error"]["type"] == "rate_limit_error", error.body
                return "busy"

        once = list(pool.map(ask, [0] * 16))
        assert {"message", "busy"} == set(once), once
        retried = list(pool.map(ask, [30] * 16))
    assert set(retried) == {"message"}, retried
    print(f"busy: {once.count('busy')} of 16 refused, none after retries")


def main():
    if sys.argv[1:] == ["busy"]:
        return busy()
    client = anthropic.Anthropic(max_retries=0)
    models = client.models.list().data
    assert [model.id for model in models] == ["tiny"] and models[0].created_at.year >= 2024, models
    assert client.models.retrieve("tiny").display_name == "tiny"
    for part in (whole_and_streamed, tools_both_ways, errors):
        part(client)
        print(f"{part.__name__}: anthropic {importlib.metadata.version('anthropic')}")
    # As clients of both kinds of key.
    key = os.environ["ANTHROPIC_API_KEY"]
    for headers in ({"x-api-key": key, "authorization": "Bearer none"}, {"authorization": f"Bearer {key}"}):
        whole_and_streamed(anthropic.Anthropic(api_key="none", max_retries=0, default_headers=headers))
    print("keys in both headers")


if __name__ == "__main__":
    main()
