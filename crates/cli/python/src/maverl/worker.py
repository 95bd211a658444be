"""Python files that a run calls: programs that play episodes, rewards and environments.

``run`` is the main function of a program of ``program/run``. The same program works with both modes: the run starts it for each
episode, or it lives as long as the run and takes episodes one after another.

    from maverl import worker

    def play(episode: worker.Episode) -> str:
        said = episode.openai().chat.completions.create(
            model=episode.models[0], messages=[{"role": "user", "content": episode.task["question"]}]
        )
        return said.choices[0].message.content or ""

    worker.run(play)

The other names are the types of what a run gives to reward functions and environments, and of what these return. Such files run
without this package too: write ``from __future__ import annotations``, and import it below ``if TYPE_CHECKING:``.
"""

import asyncio
import inspect
import json
import os
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Dict, List, Optional, Protocol, Tuple, TypedDict, TypeVar, Union, cast

from ._error import Error
from ._optional import import_optional
from ._types import Message, Task

if TYPE_CHECKING:
    from anthropic import Anthropic
    from openai import OpenAI

__all__ = [
    "Action",
    "Environment",
    "Episode",
    "Item",
    "Malformed",
    "Message",
    "Observation",
    "Play",
    "Refused",
    "Report",
    "Reward",
    "RewardValue",
    "Score",
    "Step",
    "Task",
    "ToolCall",
    "run",
]

_GATEWAY, _GATEWAY_KEY = "MAVERL_GATEWAY_URL", "MAVERL_GATEWAY_KEY"
_WAIT_S = 20
"""Seconds for which a claim waits for an episode."""
_FULL = ("episode_limit", "context_length_exceeded", "prompt is too long")
"""What refusals contain because of a limit of the episode's calls, or a full context."""
_OVER = "episode_closed"
"""Code of refusals after the end of the episode, such as by its time limit."""


class ToolCall(TypedDict):
    """A call of a tool of the environment."""

    tool: str
    arguments: Dict[str, Any]


Action = Union[str, ToolCall]
"""What a team does in an environment."""


class Observation(TypedDict):
    """The answer of the environment to an action."""

    text: str
    done: bool


class Report(TypedDict, total=False):
    """The end of an episode. ``reward`` and ``solved`` are for ``environment.name = "reported"``."""

    answer: Union[str, int, float, None]
    reward: float
    solved: bool
    metrics: Dict[str, float]


class _ItemKeys(TypedDict):
    task: str
    source: str
    question: str
    fields: Dict[str, Any]
    seat: Optional[str]
    turn: Optional[int]
    prompt: List[Message]
    reply: str
    answer: Optional[str]
    seed: int


class Item(_ItemKeys, total=False):
    """What a reward function of the form ``f(item)`` or ``f(items)`` gets: a reply of a turn, or the answer of the team.

    ``task`` is the id of the task, ``fields`` the keys of its data that ``send`` names, and ``turn`` the index of the turn in the
    episode; ``seat`` and ``turn`` are ``None`` for an answer. ``completion_ids`` is there for functions that name it.
    """

    completion_ids: List[int]


class Reward(TypedDict, total=False):
    """A value of a reward function with further quantities. ``None`` is no value."""

    reward: Optional[float]
    parts: Dict[str, float]
    feedback: str


RewardValue = Union[float, None, Reward]
"""What a reward function returns for an item. One of the form ``f(items)`` returns a list of them."""


class _StepKeys(TypedDict):
    observation: str


class Step(_StepKeys, total=False):
    """The answer of an environment to an action."""

    reward: float
    done: bool


class _ScoreKeys(TypedDict):
    reward: float


class Score(_ScoreKeys, total=False):
    """The judgement of an answer. Any further number is a metric."""

    solved: bool


State = TypeVar("State")


class Environment(Protocol[State]):
    """The methods that a class of ``environment.name = "python"`` must have. One object has the rules of all episodes.

    ``score(state, answer)``, ``tools()``, ``fork(state)`` and ``close(state)`` are optional.
    """

    def reset(self, task: Dict[str, Any], seed: int) -> State:
        """Begins an episode, and returns its state."""
        ...

    def step(self, state: State, action: Any) -> Union[Step, str, Tuple[Any, float, bool, bool, Dict[str, Any]]]:
        """Answers an `Action`."""
        ...


class Malformed(Exception):
    """A reply that a program cannot read. Raised by `play`, it ends the episode: it is scored without an answer.

    `completion` is the ``id`` of the answer with the reply, which is then marked as malformed.
    """

    completion: Optional[str]

    def __init__(self, message: str, completion: Optional[str] = None) -> None:
        super().__init__(message)
        self.completion = completion


class Refused(Error):
    """A request that the run has refused, with the status of its answer."""

    status: int

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Episode:
    """An episode that this program plays.

    `models` are the names that it may ask, in the order of the configuration. `base_url` ends with ``/v1``, as clients of OpenAI
    want it; `url` is the same without it, as those of Anthropic do. `seed` differs between the episodes of a task.
    """

    id: str
    seed: int
    task: Task
    models: List[str]
    base_url: str
    api_key: str

    def __init__(self, description: Dict[str, Any], heartbeat: Optional[Callable[[str], None]] = None) -> None:
        """Reads an episode from the object that the run gives. `heartbeat` extends the lease of the episode with an id."""
        self.id = description["id"]
        self.seed = int(description["seed"])
        self.task = description["task"]
        self.models = description["models"]
        self.base_url = description["base_url"]
        self.api_key = description["api_key"]
        self._heartbeat = heartbeat

    def __repr__(self) -> str:
        return f"<maverl.worker.Episode {self.id}>"

    @property
    def url(self) -> str:
        """Address of the episode without ``/v1``."""
        return self.base_url[: -len("/v1")] if self.base_url.endswith("/v1") else self.base_url

    def openai(self, **options: Any) -> "OpenAI":
        """Returns a client of the package `openai` for this episode. `options` are those of `openai.OpenAI`."""
        module = import_optional("openai", "`base_url` and `api_key` are for any other client")
        client: "OpenAI" = module.OpenAI(base_url=self.base_url, api_key=self.api_key, **options)
        return client

    def anthropic(self, **options: Any) -> "Anthropic":
        """Returns a client of the package `anthropic` for this episode. `options` are those of `anthropic.Anthropic`."""
        module = import_optional("anthropic", "`url` and `api_key` are for any other client")
        client: "Anthropic" = module.Anthropic(base_url=self.url, auth_token=self.api_key, api_key=None, **options)
        return client

    def tools(self) -> List[Dict[str, Any]]:
        """Returns the tools of the environment, each as an element of ``tools`` of a chat completion."""
        tools: List[Dict[str, Any]] = _get(self.url + "/tools", self.api_key)["tools"]
        return tools

    def act(self, action: Action) -> Observation:
        """Acts in the environment: a text, or a call of one of its tools."""
        body = {"text": action} if isinstance(action, str) else {"name": action["tool"], "arguments": action["arguments"]}
        return cast(Observation, self._post("/act", body))

    def add_reward(self, name: str, value: float, of: Union[str, Dict[str, str]] = "episode") -> None:
        """Adds a part to the reward: of the episode, of ``{"seat": NAME}``, or of the turn of ``{"completion": ID}``."""
        self._post("/parts", {"name": name, "value": value, "of": of})

    def heartbeat(self) -> None:
        """Says that this program still plays. A worker whose own work lasts longer than ``orchestra.lease_s`` without a request must
        say so; for other programs, this has no effect.
        """
        if self._heartbeat is not None:
            self._heartbeat(self.id)

    def finish(self, report: Report) -> None:
        """Ends the episode. `run` does this with what `play` returns."""
        self._post("/finish", report)

    def fail(self, error: Malformed) -> None:
        """Ends the episode without an answer because of a reply. `run` does this if `play` raises `Malformed`."""
        body: Dict[str, Any] = {"by": "policy", "message": str(error)}
        self._post("/fail", body if error.completion is None else {**body, "completion": error.completion})

    def _post(self, path: str, body: Any) -> Any:
        return _post(self.url + path, self.api_key, body)


Play = Callable[[Episode], Union[str, int, float, None, Report, Awaitable[Union[str, int, float, None, Report]]]]
"""A function that plays an episode, and returns the answer, or a `Report`. It may be ``async``."""


def run(play: Play) -> None:
    """Plays the episodes of a run, and returns when there are no more.

    With ``mode = "worker"`` these are all that the run has for this process, one after another; a process that the run has not
    started takes part by the variables ``MAVERL_GATEWAY_URL`` and ``MAVERL_GATEWAY_KEY``. Otherwise it is the one on standard input.

    `Malformed` ends an episode without an answer, and so does a call that was refused because of a limit or a full context. Any
    other exception of `play` ends this process, and is a crash of the episode (``on_crash``). Raises `Error` if there is no run.
    """
    if _GATEWAY in os.environ:
        _play_claimed(play)
        return
    line = "" if sys.stdin.isatty() else sys.stdin.readline()
    try:
        episode = Episode(json.loads(line))
    except (ValueError, KeyError, TypeError):
        raise Error(
            "there is no episode on standard input; a run starts this program (`orchestra.name = \"program/run\"`), or it attaches "
            f"to one by {_GATEWAY} and {_GATEWAY_KEY}"
        ) from None
    _play_one(episode, play)


def _play_claimed(play: Play) -> None:
    """Plays episodes until the run is over: it says so, or its end closes the connection."""
    root, key = os.environ[_GATEWAY], os.environ.get(_GATEWAY_KEY)
    if not key:
        raise Error(f"{_GATEWAY_KEY} is not set; it is the key of the run, in the variable that `orchestra.key_env` names")

    def heartbeat(episode: str) -> None:
        _post(root + "/heartbeat", key, {"episodes": [episode]})

    is_known = False
    while True:
        try:
            claimed = _post(root + "/claim", key, {"worker": os.path.basename(sys.argv[0]) or "worker", "max": 1, "wait_s": _WAIT_S})
        except Refused as refused:
            if refused.status == 410:
                return
            raise
        except OSError as error:
            if is_known:
                return
            raise Error(f"there is no run at {root}: {error}") from None
        is_known = True
        for description in claimed.get("episodes", []):
            _play_one(Episode(description, heartbeat), play)


def _play_one(episode: Episode, play: Play) -> None:
    """Plays an episode, and reports its end. One that is over already, as by its time limit, is left."""
    try:
        try:
            result = play(episode)
            if inspect.isawaitable(result):
                result = asyncio.run(_awaited(result))
            episode.finish(_report(result))
        except Malformed as malformed:
            episode.fail(malformed)
        except Exception as error:
            if not _has_reason(error, *_FULL):
                raise
            episode.finish({"answer": None})
    except Exception as error:
        if not _has_reason(error, _OVER):
            raise


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _report(result: Any) -> Report:
    """Returns what `play` returned as a report."""
    if isinstance(result, dict):
        return cast(Report, result)
    if result is None or isinstance(result, (str, int, float)):
        return {"answer": result}
    raise Error(f"`play` returned {type(result).__name__}; return the answer as a text, or a dict with `answer` or `reward`")


def _has_reason(error: Optional[BaseException], *reasons: str) -> bool:
    """Returns true for a refusal with one of these codes or texts, also below the exceptions of a framework."""
    while error is not None:
        text = f"{getattr(error, 'code', '')} {error}"
        if any(reason in text for reason in reasons):
            return True
        error = error.__cause__ or error.__context__
    return False


def _get(url: str, key: str) -> Any:
    return _answer(urllib.request.Request(url, headers={"authorization": f"Bearer {key}"}))


def _post(url: str, key: str, body: Any) -> Any:
    head = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    return _answer(urllib.request.Request(url, json.dumps(body).encode(), head))


def _answer(request: urllib.request.Request) -> Any:
    """Returns the answer of the gateway; an empty dict if it has no content. Raises `Refused` with its message."""
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer) if answer.status == 200 else {}
    except urllib.error.HTTPError as refused:
        with refused:
            text = refused.read().decode("utf-8", "replace")
        raise Refused(f"{request.full_url} answers with status {refused.code}: {_message(text)}", refused.code) from None


def _message(text: str) -> str:
    """Returns the code and the message of a refusal."""
    try:
        error = json.loads(text)["error"]
        return f"{error['code']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        return text[:200]
