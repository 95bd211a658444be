"""Environments by a class of a file: of maverl, or with the methods of Gymnasium."""

TOOL = '{"name": .., "description": .., "parameters": ..}'


def start_environment(path):
    """Returns the handler of requests for the class of the arguments, and its tools."""
    name, arguments = sys.argv[2], json.loads(sys.argv[3])
    kind = getattr(load_file(path), name, None)
    if not callable(kind):
        raise Unusable(f"has no class `{name}`: write `class = \"..\"`")
    world = kind(**copied(arguments))
    if not callable(getattr(world, "reset", None)):
        raise Unusable(f"`{name}` has no method `reset`; an environment has `reset(task, seed)`, and `step(state, action)` if teams act")
    waits = [m for m in ("reset", "step", "score", "tools", "fork", "close") if inspect.iscoroutinefunction(getattr(world, m, None))]
    if waits:
        raise Unusable(f"`{waits[0]}` of `{name}` is `async def`; write `def`, and `asyncio.run` in it if it has to wait")
    if callable(getattr(world, "tools", None)) and not callable(getattr(world, "step", None)):
        raise Unusable(f"`{name}` has `tools` and no method `step`; a call of a tool is an action of `step(state, action)`")
    own = True
    if callable(getattr(world, "step", None)):
        required, accepted, _ = parameters_of(world.step)
        if len(required) > 2:
            raise Unusable(f"`step` of `{name}` needs {quote(required)}; it gets `state` and `action`, or `action` as in Gymnasium")
        own = len(required) == 2 or "state" in accepted
    sessions = (OwnSessions if own else GymnasiumSessions)(path, kind, arguments, world)
    return sessions.answer, {"ok": True, "tools": sessions.tools(), "scores": callable(getattr(world, "score", None))}


class Sessions:
    """States of the open sessions by their keys. Every request names one."""

    def __init__(self, path, kind, arguments, world):
        self.path, self.kind, self.arguments, self.world = path, kind, arguments, world
        self.states = {}

    def answer(self, request):
        return {"results": [self.guarded(item) for item in request["items"]]}

    def guarded(self, item):
        """Returns the result of a request, or the failure of the class."""
        if item["op"] != "reset" and item["key"] not in self.states:
            return {"lost": True}
        seed_random(item["seed"] if item["op"] == "reset" else item["seed"] * 1_000_003 + item["steps"])
        try:
            return {"ok": True, **(getattr(self, item["op"])(item) or {})}
        except Wrong as error:
            return {"failed": str(error)}
        except BaseException as error:
            return {"failed": describe(error, self.path)}

    def reset(self, item):
        self.states[item["key"]], seen = self.begin(item["task"], item["seed"])
        return {"observation": seen}

    def step(self, item):
        return read_step(self.act(self.states[item["key"]], item["action"]))

    def score(self, item):
        return read_score(self.world.score(self.states[item["key"]], item["answer"]))

    def close(self, item):
        self.end(self.states.pop(item["key"]))

    def fork(self, item):
        """Copies a state, if the class does, or if it is JSON."""
        state = self.states[item["key"]]
        if callable(getattr(self.world, "fork", None)):
            self.states[item["copy"]] = self.world.fork(state)
            return {"forked": True}
        try:
            is_json = json.loads(json.dumps(state, allow_nan=False)) == state
        except (TypeError, ValueError, RecursionError):
            is_json = False
        if is_json:
            self.states[item["copy"]] = copy.deepcopy(state)
        return {"forked": is_json}

    def tools(self):
        """Returns the tools that the class lists."""
        listed = self.world.tools() if callable(getattr(self.world, "tools", None)) else []
        if not isinstance(listed, (list, tuple)):
            raise Unusable(f"`tools` returned {show(listed)}; return a list of {TOOL}")
        return [read_tool(tool) for tool in listed]


class OwnSessions(Sessions):
    """One object with the rules; `reset` returns the state of a session, which `step` gets."""

    def begin(self, task, seed):
        state = self.world.reset(task, seed)
        return state, as_text(state.get("observation")) if isinstance(state, dict) else None

    def act(self, state, action):
        if not callable(getattr(self.world, "step", None)):
            raise Wrong("the class has no method `step(state, action)`, and the team acts")
        return self.world.step(state, action)

    def end(self, state):
        if callable(getattr(self.world, "close", None)):
            self.world.close(state)


class GymnasiumSessions(Sessions):
    """An object of its own for each session."""

    def begin(self, task, seed):
        world = self.kind(**copied(self.arguments))
        begun = world.reset(seed=seed)
        return world, as_text(begun[0] if isinstance(begun, tuple) and len(begun) == 2 else begun)

    def act(self, world, action):
        space = getattr(world, "action_space", None)
        if not hasattr(space, "n"):
            return world.step(action)
        first = getattr(space, "start", 0)
        try:
            number = int(str(action).strip())
        except ValueError:
            number = None
        if number is None or not first <= number < first + space.n:
            return {"observation": f"an action is a number from {first} to {first + space.n - 1}"}
        return world.step(number)

    def score(self, item):
        return read_score(self.states[item["key"]].score(item["answer"]))

    def fork(self, item):
        return {"forked": False}

    def end(self, world):
        if callable(getattr(world, "close", None)):
            world.close()


def read_tool(tool):
    """Returns a tool that has a name and is JSON."""
    own = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(own, dict) or not isinstance(own.get("name"), str):
        raise Unusable(f"`tools` lists {show(tool)}; a tool is {TOOL}")
    try:
        return json.loads(json.dumps(tool, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise Unusable(f"`tools` lists `{own['name']}`, which is no JSON: {error}")


def as_text(value):
    """Returns an observation as a text."""
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return str(value)


def read_step(result):
    """Returns what a step gave: a dict, the five values of Gymnasium, or an observation alone."""
    if isinstance(result, tuple) and len(result) == 5:
        seen, reward, terminated, truncated, _ = result
        done = truth(terminated, "`step` gave `terminated`") or truth(truncated, "`step` gave `truncated`")
        result = {"observation": seen, "reward": reward, "done": done}
    elif isinstance(result, str):
        result = {"observation": result}
    if not isinstance(result, dict) or "observation" not in result:
        raise Wrong(f"`step` returned {show(result)}; return {{\"observation\": .., \"reward\": .., \"done\": ..}}, or five values as Gymnasium")
    unknown = [key for key in result if key not in ("observation", "reward", "done", "info")]
    if unknown:
        raise Wrong(f"`step` returned the key {show(unknown[0])}; its keys are `observation`, `reward`, `done` and `info`")
    read = {"observation": as_text(result["observation"]) or "", "done": truth(result.get("done", False), "`step` gave `done`")}
    if result.get("reward") is not None:
        read["reward"] = finite_number(result["reward"], "`step` gave the reward")
    return read


def truth(value, what):
    """Returns a truth value of Python or NumPy; raises `Wrong` for anything else, such as a text."""
    plain = value.item() if hasattr(value, "item") else value
    if not isinstance(plain, (bool, int)) or plain not in (0, 1):
        raise Wrong(f"{what} {show(value)}, which is no truth value; write True or False")
    return bool(plain)


def read_score(result):
    """Returns a score: a number, or a dict with further quantities."""
    if not isinstance(result, dict):
        return {"reward": finite_number(result, "`score` returned")}
    key = "reward" if "reward" in result else "score"
    if key not in result:
        raise Wrong(f"`score` returned {show(result)}, which has neither `reward` nor `score`")
    metrics = {str(name): finite_number(value) for name, value in result.items() if name not in (key, "solved") and hasattr(value, "__float__")}
    solved = {"solved": truth(result["solved"], "`score` gave `solved`")} if "solved" in result else {}
    return {"reward": finite_number(result[key], "`score` returned"), "metrics": metrics, **solved}


serve(sys.argv[1], start_environment)
