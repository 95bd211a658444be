"""Rewards by functions of a file: of maverl, TRL and verl."""

TEXTS = ("item", "items")
TRL = ("prompts", "completions", "completion_ids")
VERL = ("solution_str", "solution_strs")
# Parameters of TRL without a value here.
TRAINER = ("trainer_state", "log_extra", "log_metric", "environments")


def start_rewards(path):
    """Returns the handler of requests for the function of the arguments, and what it needs of an item."""
    name, style, send = sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    function = find_function(load_file(path), name)
    required, accepted, others = parameters_of(function)
    scorer = Scorer(path, name, function, accepted, others, send)
    style = style_of(name, accepted, others) if style == "auto" else style
    scorer.call, given = {
        "maverl": (scorer.call_maverl, None),
        "trl": (scorer.call_trl, [*TRL, "task_id", "source", "question", *send]),
        "trl_chat": (scorer.call_chat, [*TRL, "task_id", "source", "question", *send]),
        "verl": (scorer.call_verl, verl_parameters(scorer)),
    }[style]
    check_parameters(name, required, given, send)
    return scorer.answer, {"ok": True, "ids": "completion_ids" in accepted or (others and style.startswith("trl"))}


def find_function(module, name):
    function = getattr(module, name, None)
    if callable(function):
        return function
    own = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
    raise Unusable(f"has no function `{name}`; its functions are {quote(own)}: write `function = \"..\"`")


def style_of(name, accepted, others):
    if any(parameter in VERL for parameter in accepted):
        return "verl"
    if any(parameter in TRL for parameter in accepted):
        return "trl"
    if accepted[:1] and accepted[0] in TEXTS:
        return "maverl"
    raise Unusable(
        f"`{name}` has the parameters {quote(accepted)}, which fit no style: `item` or `items` of maverl, "
        "`prompts` and `completions` of TRL, `data_source`, `solution_str` and `ground_truth` of verl; rename them, or write `style`"
    )


def verl_parameters(scorer):
    plural = "s" if "solution_strs" in scorer.accepted else ""
    names = ["data_source" + plural, "solution_str" + plural, "extra_info" + plural]
    return names + (["ground_truth" + plural] if scorer.send else [])


def check_parameters(name, required, given, send):
    """Raises if the function has parameters that get no value."""
    if given is None:
        if len(required) > 1:
            raise Unusable(f"`{name}` has the parameters {quote(required)}; a function of maverl has one, `item` or `items`")
        return
    missing = [parameter for parameter in required if parameter not in given]
    if missing and missing[0] in TRAINER:
        raise Unusable(f"`{name}` needs `{missing[0]}`, which is part of TRL's trainer; give it a default")
    if missing and missing[0].startswith("ground_truth") and not send:
        raise Unusable(f"`{name}` needs `{missing[0]}`; write the key of the reference in the task's data: `send = [\"answers\"]`")
    if missing:
        raise Unusable(f"`{name}` needs `{missing[0]}`; if that is a key of the task's data, write `send = [\"{missing[0]}\"]`")


class Scorer:
    """A function with the parameters that it accepts."""

    def __init__(self, path, name, function, accepted, others, send):
        self.path, self.name, self.function, self.send = path, name, function, send
        self.accepted, self.others = accepted, others
        code = getattr(inspect.unwrap(function), "__code__", None)
        self.place = f"line {code.co_firstlineno}: " if code and code.co_filename == path else ""
        self.call = None

    def answer(self, request):
        return {"results": [self.read(result) for result in self.call(request["items"])]}

    def read(self, result):
        """Returns the answer for an item: a value or an error."""
        try:
            if isinstance(result, BaseException):
                raise result
            return read_result(result)
        except Wrong as error:
            return {"error": f"{self.place}`{self.name}` {error}"}
        except BaseException as error:
            return {"error": self.explain(describe(error, self.path))}

    @staticmethod
    def explain(text):
        """Adds the remedy for the two forms of completions of TRL."""
        if "string indices must be integers" in text:
            return text + "; if the function reads conversations, `completion[0][\"content\"]`, write `style = \"trl_chat\"`"
        if "expected string or bytes-like object" in text and "list" in text:
            return text + "; if the function reads texts, write `style = \"trl\"`"
        return text

    def each(self, items, call):
        """Calls the function for every item. Coroutines of the items run concurrently, each with draws of its own."""
        results = []
        for item in items:
            seed_random(item["seed"])
            result = attempt(lambda: call(item))
            results.append(with_own_draws(result, random_states()) if inspect.iscoroutine(result) else result)
        return await_all(results)

    def batch(self, items, call):
        """Calls the function once, with a copy of the items. If it raises, every item is tried alone, so that it fails for no other."""
        seed_random(items[0]["seed"])
        [result] = await_all([attempt(lambda: call(copied(items)))])
        values = attempt(lambda: list_of(result))
        if isinstance(values, BaseException):
            alone = [self.batch([item], call) for item in items] if len(items) > 1 else [[values]]
            return [value for values in alone for value in values]
        if values is None or len(values) != len(items):
            found = show(result) if values is None else f"{len(values)} values"
            wrong = Wrong(f"returned {found} for {len(items)} replies; return a list with a value for each reply")
            return [wrong] * len(items)
        return values

    def accepts(self, values):
        return {name: value for name, value in values.items() if self.others or name in self.accepted}

    def call_maverl(self, items):
        if self.accepted[:1] == ["items"]:
            return self.batch(items, lambda items: self.function(items))
        return self.each(items, lambda item: self.function(item))

    def call_trl(self, items):
        return self.batch(items, lambda items: self.function(**self.trl_values(items, prompt_text, lambda text: text)))

    def call_chat(self, items):
        def message(text):
            return [{"role": "assistant", "content": text}]

        return self.batch(items, lambda items: self.function(**self.trl_values(items, lambda item: item["prompt"], message)))

    def trl_values(self, items, prompt, completion):
        named = {"task_id": "task", "source": "source", "question": "question"}
        own = {name: [item[key] for item in items] for name, key in named.items() if name in self.accepted}
        data = {key: [item["fields"].get(key) for item in items] for key in self.send}
        ids = {"completion_ids": [item["completion_ids"] for item in items]} if "completion_ids" in items[0] else {}
        prompts = {"prompts": [prompt(item) for item in items], "completions": [completion(item["reply"]) for item in items]}
        return self.accepts({**own, **data, **ids, **prompts})

    def call_verl(self, items):
        if "solution_strs" in self.accepted:
            def lists(items):
                values = [self.verl_values(item) for item in items]
                return {name + "s": [value[name] for value in values] for name in values[0]}

            return self.batch(items, lambda items: self.function(**self.accepts(lists(items))))
        return self.each(items, lambda item: self.function(**self.accepts(self.verl_values(item))))

    def verl_values(self, item):
        fields = item["fields"]
        info = fields["extra_info"] if isinstance(fields.get("extra_info"), dict) else fields
        values = {"data_source": item["source"], "solution_str": item["reply"], "extra_info": info}
        if self.send:
            key = "ground_truth" if "ground_truth" in self.send else self.send[0]
            truth = fields.get(key)
            values["ground_truth"] = truth[0] if isinstance(truth, list) and len(truth) == 1 else truth
        return values


def attempt(call):
    """Returns the result of a call, or what it raised."""
    try:
        return call()
    except BaseException as error:
        return error


def list_of(result):
    """Returns the values of a result, `None` if it is no list. Raises what the function has raised, or raises as a generator."""
    if isinstance(result, BaseException):
        raise result
    try:
        values = iter(result)
    except TypeError:
        return None
    # A set has no order.
    return None if isinstance(result, (str, bytes, dict, set, frozenset)) else list(values)


@types.coroutine
def with_own_draws(coroutine, states):
    """Awaits a coroutine with states of the generators of its own, so that it draws what it would draw alone."""
    send, value = coroutine.send, None
    while True:
        set_random_states(states)
        try:
            waited = send(value)
        except StopIteration as end:
            return end.value
        finally:
            states = random_states()
        try:
            send, value = coroutine.send, (yield waited)
        except BaseException as error:
            send, value = coroutine.throw, error


def await_all(results):
    """Awaits those results that are awaitable, concurrently. The loop stays, since clients that a file keeps belong to it."""
    if not any(inspect.isawaitable(result) for result in results):
        return results

    async def one(result):
        try:
            return await result if inspect.isawaitable(result) else result
        except BaseException as error:
            return error

    async def together():
        return await asyncio.gather(*map(one, results))

    return event_loop().run_until_complete(together())


@functools.cache
def event_loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def prompt_text(item):
    return "\n\n".join(message["content"] for message in item["prompt"])


def read_result(result):
    """Returns a result as a value: a number, nothing, or a number with parts and feedback."""
    if result is None:
        return {"none": True}
    if not isinstance(result, dict):
        return {"reward": finite_number(result)}
    key = "reward" if "reward" in result else "score"
    if key not in result:
        raise Wrong(f"returned {show(result)}, which has neither `reward` nor `score`")
    if result[key] is None:
        return {"none": True}
    parts = {**result, **(result["parts"] if isinstance(result.get("parts"), dict) else {})}
    parts = {str(n): v for n, v in parts.items() if n != key and hasattr(v, "__float__")}
    feedback = {"feedback": result["feedback"]} if isinstance(result.get("feedback"), str) else {}
    return {"reward": finite_number(result[key]), "parts": {n: finite_number(v) for n, v in parts.items()}, **feedback}


serve(sys.argv[1], start_rewards)
