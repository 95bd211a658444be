"""Servers of models and of the policies of a run."""

import json
import os
import secrets
import urllib.error
import urllib.request
from types import TracebackType
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Type, Union

from ._error import Error
from ._optional import import_optional
from ._process import Process
from ._run import Run, StrPath

if TYPE_CHECKING:
    from openai import OpenAI

_KEY = "KEY_OF_THE_SERVER"
"""Variable of the server's process that holds its key."""
_LISTENING = '{"listening":'


class Server:
    """A server at a free port of this machine, in OpenAI's protocol and in Anthropic's.

    It ends with the `with` block, with `close`, or with this process. `url` is its address without ``/v1``, and `key` the key that
    requests need.
    """

    url: str
    key: str

    def __init__(self, process: Process, url: str, key: str) -> None:
        self._process = process
        self.url = url
        self.key = key

    def __repr__(self) -> str:
        return f"<maverl.Server at {self.url}>"

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops the server when it has answered the requests that it has."""
        self._process.stop_and_wait()

    def models(self) -> List[str]:
        """Returns the names of the models, the first of them first."""
        request = urllib.request.Request(f"{self.url}/v1/models", headers={"Authorization": f"Bearer {self.key}"})
        with _open_directly(request) as answer:
            return [model["id"] for model in json.load(answer)["data"]]

    def openai(self, **options: Any) -> "OpenAI":
        """Returns a client of the package `openai` with the address and the key. `options` are those of `openai.OpenAI`."""
        module = import_optional("openai", "`url` and `key` are for any other client")
        # A proxy of the environment does not reach this machine.
        options.setdefault("http_client", module.DefaultHttpxClient(trust_env=False))
        client: "OpenAI" = module.OpenAI(base_url=f"{self.url}/v1", api_key=self.key, **options)
        return client


def serve(
    model: Union[Run, StrPath],
    *,
    checkpoint: Union[str, int, Sequence[Union[str, int]]] = "last",
    options: Sequence[str] = (),
    quiet: bool = True,
) -> Server:
    """Serves the policies of a run, or a model, and returns the server when it is ready.

    `model` is a `Run`, or a model: a Hugging Face directory, ``"hf:ORG/NAME"`` or ``"builtin:tiny"``. `checkpoint` of a run is
    ``"last"``, ``"best"`` or a step; of several, the first has the plain names. `options` are further arguments of
    `maverl serve model`, such as ``["--dtype", "bf16"]``. Raises `Error` if the server does not start.
    """
    args = ["serve", "model", *_sources(model, checkpoint), "--address", "127.0.0.1:0", "--key-env", _KEY, *options]
    key = secrets.token_urlsafe(24)
    process = Process(args, quiet=quiet, is_awaited=False, env={_KEY: key})
    try:
        line = process.wait_for_line(_LISTENING)
        if line is None:
            raise Error("the server ended before it was ready", process.code)
        server = Server(process, json.loads(line)["listening"], key)
        _wait_until_ready(process, server.url)
    except KeyboardInterrupt:
        process.stop_and_wait()
        raise
    return server


def _sources(model: Union[Run, StrPath], checkpoint: Union[str, int, Sequence[Union[str, int]]]) -> List[str]:
    if not isinstance(model, Run):
        if checkpoint != "last":
            raise Error(f"`checkpoint` is of a run; `{os.fspath(model)}` is a model: write `maverl.Run(..)` for a run")
        return ["--model", os.fspath(model)]
    chosen = [checkpoint] if isinstance(checkpoint, (str, int)) else checkpoint
    return ["--run", str(model.path), *(f"--checkpoint={which}" for which in chosen)]


def _wait_until_ready(process: Process, url: str) -> None:
    """Waits until everything is loaded."""
    while True:
        try:
            with _open_directly(urllib.request.Request(f"{url}/health")):
                return
        except (urllib.error.URLError, OSError):
            if process.wait(0.1):
                raise process.error() or Error("the server ended before it was ready", process.code) from None


def _open_directly(request: urllib.request.Request) -> Any:
    """Opens an address of this machine, without the proxy of the environment."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60)
