"""A server of the package openenv with a game: the team is told a number, and is to say the next one.

The first line of standard output is its address. Every session is an environment of its own.
"""

import json
import socket
import sys
from typing import Optional

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Say(Action):
    message: str


class Seen(Observation):
    prompt: str


class Game(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.number, self._state = 0, State()

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, number: Optional[int] = None, **_):
        self.number = (seed or 0) % 10 if number is None else number
        self._state = State(episode_id=episode_id, step_count=0)
        return Seen(prompt=f"Which number comes after {self.number}?")

    def step(self, action: Say, timeout_s: Optional[float] = None, **_):
        self._state.step_count += 1
        if action.message == "break":
            raise RuntimeError("the game broke")
        try:
            right = int(action.message) == self.number + 1
        except ValueError:
            return Seen(prompt="Say a number.")
        return Seen(prompt="Right." if right else "Wrong.", reward=float(right), done=right or self._state.step_count > 2)

    def list_splits(self):
        return ["train"]

    def list_tasks(self, split):
        assert split == "train", split
        return [{"id": f"g{index}", "question": "Play the game.", "number": index} for index in range(6)]

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"listening": "http://127.0.0.1:%d" % listening.getsockname()[1]}), flush=True)
    app = create_fastapi_app(Game, Say, Seen, max_concurrent_envs=sessions)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
