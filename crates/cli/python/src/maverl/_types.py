"""Shapes of what a run directory contains. The page *Reading a run directory* of the book defines the keys."""

from typing import Any, Dict, List, Optional, TypedDict, Union

MetricRow = Dict[str, Union[int, float]]
"""A row of metrics: ``step``, and each metric by name."""


class Message(TypedDict):
    """A message of a prompt."""

    role: str
    content: str


class Task(TypedDict):
    """The task of an episode."""

    id: str
    source: str
    question: str
    data: Dict[str, Any]


class Tokens(TypedDict):
    """Token ids of a turn that a policy of the run sampled."""

    prompt: List[int]
    completion: List[int]
    logprobs: List[float]
    version: int
    seed: int
    temperature: float
    finish: str


class _TurnKeys(TypedDict):
    path: List[int]
    seat: str
    policy: str
    prompt: List[Message]
    reply: str
    error: Optional[str]
    truncated: bool
    shortened: int
    forked: bool
    tokens: Optional[Tokens]


class Turn(_TurnKeys, total=False):
    """A reply of an agent. ``tools`` is there if it had any, ``masked`` if it is not trained on."""

    tools: List[Dict[str, Any]]
    masked: bool


class RewardPart(TypedDict):
    """A part of the reward: of the episode (``"episode"``), of a seat (``{"seat": ..}``) or of a turn (``{"turn": ..}``)."""

    name: str
    value: float
    of: Any


class Outcome(TypedDict, total=False):
    """The outcome of an episode: ``scored`` or ``unscored``."""

    scored: Dict[str, Any]
    unscored: Dict[str, str]


class _EpisodeKeys(TypedDict):
    step: int
    task: Task
    index: int
    seed: int
    turns: List[Turn]
    answer: Optional[str]
    outcome: Outcome
    rewards: List[RewardPart]


class Episode(_EpisodeKeys, total=False):
    """An episode with all of its turns. ``acts`` is there if its orchestra acted in an environment."""

    acts: List[Dict[str, Any]]
