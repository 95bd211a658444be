"""Drives `maverl serve train` with the package of the Tinker API. Prints figures as lines of JSON.

python tinker_clients.py loops          losses, supervised and reinforcement learning, samples, transports, two clients at once
python tinker_clients.py mistakes       requests that are refused
python tinker_clients.py begin          trains, saves, trains on; prints the path and the losses after it
python tinker_clients.py go_on PATH     loads the checkpoint with its optimizer, and trains on in the same way

Environment: TINKER_BASE_URL, TINKER_API_KEY.
"""

import json
import sys
import threading

import numpy as np
import tinker
from tinker import types
from tinker.lib.internal_client_holder import InternalClientHolder

BASE = "builtin:tiny"
CONFIG = {}
fetch = InternalClientHolder._fetch_client_config


async def configured(self, auth):
    """Returns what the server says, with what a test wants to be different."""
    return (await fetch(self, auth)).model_copy(update=CONFIG)


InternalClientHolder._fetch_client_config = configured


def client(seed=1, rank=8):
    service = tinker.ServiceClient()
    return service, service.create_lora_training_client(base_model=BASE, rank=rank, seed=seed).result()


def datum(ids, **inputs):
    return types.Datum(
        model_input=types.ModelInput.from_ints(ids),
        loss_fn_inputs={
            name: np.asarray(values, dtype=np.int64 if name == "target_tokens" else np.float32)
            for name, values in inputs.items()
        },
    )


def texts(training, count=12):
    """Returns texts to learn, with weights on all but the first tokens."""
    tokenizer = training.get_tokenizer()
    data = []
    for i in range(count):
        ids = tokenizer.encode(f"Question: Who wrote Magdor?\nNumber {i} wrote it, and number {i + 1} read it.")
        weights = [0.0] * 4 + [1.0] * (len(ids) - 5)
        data.append(datum(ids[:-1], target_tokens=ids[1:], weights=weights))
    return data


def adam(rate=2e-3):
    return types.AdamParams(learning_rate=rate, beta1=0.9, beta2=0.95, eps=1e-8)


def step(training, data, loss="cross_entropy", rate=2e-3, config=None):
    """Sends a pass and a step at once, and returns the loss of the pass."""
    passed = training.forward_backward(data, loss, loss_fn_config=config)
    stepped = training.optim_step(adam(rate))
    result = passed.result()
    stepped.result()
    return result.metrics["loss:sum"]


def supervised(seed, steps=6):
    _, training = client(seed)
    data = texts(training)
    return [step(training, data) for _ in range(steps)]


def values(output, name="logprobs"):
    return [np.asarray(one[name].data, dtype=np.float32) for one in output.loss_fn_outputs]


def formulas():
    """Compares each loss with its formula, from the log-probs that come back."""
    _, training = client()
    random = np.random.default_rng(3)
    rows = [random.integers(3, 400, size=n).tolist() for n in (3, 17, 30)]
    worst = 0.0
    for loss, config in [
        ("importance_sampling", None),
        ("ppo", None),
        ("ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.05}),
        ("cispo", None),
        ("dro", {"beta": 0.3}),
        ("cross_entropy", None),
    ]:
        data, inputs = [], []
        for row in rows:
            n = len(row) - 1
            old = random.normal(-3.0, 1.0, size=n).astype(np.float32)
            advantages = random.normal(0.0, 1.0, size=n).astype(np.float32)
            inputs.append((old, advantages))
            if loss == "cross_entropy":
                data.append(datum(row[:-1], target_tokens=row[1:], weights=advantages))
            else:
                data.append(datum(row[:-1], target_tokens=row[1:], logprobs=old, advantages=advantages))
        output = training.forward_backward(data, loss, loss_fn_config=config).result()
        expected = 0.0
        for logp, (old, advantages) in zip(values(output), inputs):
            logp, old, a = (x.astype(np.float64) for x in (logp, old, advantages))
            ratio = np.exp(logp - old)
            numbers = config or {}
            if loss == "importance_sampling":
                terms = -ratio * a
            elif loss == "ppo":
                low, high = numbers.get("clip_low_threshold", 0.8), numbers.get("clip_high_threshold", 1.2)
                terms = -np.minimum(ratio * a, np.clip(ratio, low, high) * a)
            elif loss == "cispo":
                terms = -np.clip(ratio, 0.0, 4.0) * logp * a
            elif loss == "dro":
                terms = -(logp * a - numbers["beta"] / 2 * (logp - old) ** 2)
            else:
                terms = -a * logp
            expected += terms.sum()
        found = output.metrics["loss:sum"]
        worst = max(worst, abs(found - expected) / max(1.0, abs(expected)))
    assert worst < 1e-5, worst
    return worst


def forward_equals_backward_and_samples():
    """Compares log-probs of samples, of `forward` and of `forward_backward`, bit by bit."""
    service, training = client(7)
    step(training, texts(training))
    sampler = training.save_weights_and_get_sampling_client()
    sampler = sampler.result() if hasattr(sampler, "result") else sampler
    prompt = training.get_tokenizer().encode("Question: Who wrote Magdor?")
    params = types.SamplingParams(max_tokens=16, temperature=1.0, seed=5)
    samples = sampler.sample(types.ModelInput.from_ints(prompt), 4, params, include_prompt_logprobs=True).result()
    assert len({tuple(one.tokens) for one in samples.sequences}) > 1, "samples of one request differ"
    again = sampler.sample(types.ModelInput.from_ints(prompt), 4, params).result()
    assert [one.tokens for one in again.sequences] == [one.tokens for one in samples.sequences]
    data = []
    for one in samples.sequences:
        ids = prompt + list(one.tokens)
        data.append(datum(ids[:-1], target_tokens=ids[1:], weights=[1.0] * (len(ids) - 1)))
    forward = values(training.forward(data, "cross_entropy").result())
    backward = values(training.forward_backward(data, "cross_entropy").result())
    for one, ahead, back in zip(samples.sequences, forward, backward):
        sampled = np.asarray(one.logprobs, dtype=np.float32)
        assert np.array_equal(ahead, back)
        assert np.array_equal(ahead[len(prompt) - 1 :], sampled), "samples and passes differ"
    given = samples.prompt_logprobs
    assert given[0] is None and np.array_equal(np.asarray(given[1:], dtype=np.float32), forward[0][: len(prompt) - 1])
    scores = sampler.compute_logprobs(types.ModelInput.from_ints(prompt)).result()
    assert scores[1:] == list(given[1:])
    base = service.create_sampling_client(base_model=BASE)
    base = base.result() if hasattr(base, "result") else base
    other = base.sample(types.ModelInput.from_ints(prompt), 1, params).result()
    assert other.sequences[0].logprobs != samples.sequences[0].logprobs, "the base is not trained"
    return sum(len(one.tokens) for one in samples.sequences)


def reinforcement(loss, steps=12, samples=32):
    """Learns to sample even ids; returns the share of them in the first and in the last step."""
    _, training = client(11)
    prompt = training.get_tokenizer().encode("Question: Who wrote Magdor?")
    shares = []
    for number in range(steps):
        sampler = training.save_weights_and_get_sampling_client()
        sampler = sampler.result() if hasattr(sampler, "result") else sampler
        params = types.SamplingParams(max_tokens=4, temperature=1.0, seed=number)
        found = sampler.sample(types.ModelInput.from_ints(prompt), samples, params).result().sequences
        rewards = np.array([np.mean([token % 2 == 0 for token in one.tokens]) for one in found])
        shares.append(float(rewards.mean()))
        advantages = rewards - rewards.mean()
        data = []
        for one, advantage in zip(found, advantages):
            ids, before = prompt + list(one.tokens), len(prompt) - 1
            data.append(
                datum(
                    ids[:-1],
                    target_tokens=[0] * before + list(one.tokens),
                    logprobs=[0.0] * before + list(one.logprobs),
                    advantages=[0.0] * before + [advantage] * len(one.tokens),
                )
            )
        step(training, data, loss, rate=1e-2)
    return shares[0], float(np.mean(shares[-2:]))


def transports():
    """Trains in the same way over each transport, plain and packed, in one chunk and in several."""
    losses = []
    for pyqwest in (True, False):
        for packed in (True, False):
            CONFIG.update(use_pyqwest_transport=pyqwest, proto_compress_fwdbwd=packed, fwdbwd_max_chunk_len=1024)
            losses.append(supervised(3, 3))
            assert losses[-1] == losses[0], (pyqwest, packed, losses)
    CONFIG.update(fwdbwd_max_chunk_len=2)
    chunks = supervised(3, 3)
    CONFIG.clear()
    assert np.allclose(chunks, losses[0], rtol=1e-4), (chunks, losses[0])
    return losses[0]


def two_clients():
    """Compares two clients at once with each alone."""
    alone = [supervised(seed) for seed in (1, 2)]
    together = [None, None]

    def run(index):
        together[index] = supervised(index + 1)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert together == alone, (together, alone)
    assert alone[0] != alone[1]
    return alone[0]


def loops():
    found = {"formulas": formulas(), "equal_tokens": forward_equals_backward_and_samples()}
    losses = two_clients()
    assert losses[-1] < 0.8 * losses[0], losses
    found["supervised"] = losses
    found["transports"] = transports()
    for loss in ("importance_sampling", "ppo", "cispo"):
        first, last = reinforcement(loss)
        found[loss] = [first, last]
        assert last > first + 0.15, (loss, first, last)
    print(json.dumps(found))


def refused(what, call, words):
    try:
        call()
    except Exception as error:  # every kind of the package
        told = str(error)
        assert words in told, f"{what}: {told}"
        print(json.dumps({"mistake": what, "told": told[:200]}))
        return
    raise AssertionError(f"{what} is accepted")


def mistakes():
    service, training = client()
    ids = [5, 6, 7]
    right = {"target_tokens": [6, 7, 8], "logprobs": [-1.0] * 3, "advantages": [1.0] * 3}

    def passed(loss="ppo", config=None, text=ids, **other):
        inputs = {name: value for name, value in {**right, **other}.items() if value is not None}
        return lambda: training.forward_backward([datum(text, **inputs)], loss, loss_fn_config=config).result()

    create = service.create_lora_training_client
    refused("base", lambda: create(base_model="no/model", rank=8).result(), "there are `builtin:tiny`")
    refused("rank", lambda: create(base_model=BASE, rank=65).result(), "it may be 1 to 64")
    refused("step", lambda: training.optim_step(adam()).result(), "there is no gradient")
    refused("length", passed(advantages=[1.0]), "datum 0: `advantages` has 1 numbers")
    refused("missing", passed(logprobs=None), "has no `logprobs`")
    refused("infinite", passed(advantages=[1.0, float("inf"), 0.0]), "write finite numbers")
    refused("loss", passed(loss="gspo"), "there is no loss `gspo`")
    refused("config", passed(config={"clip": 0.2}), "has no key `clip`")
    refused("target", passed(target_tokens=[6, 7, 10**6]), "has the id 1000000")
    long = [5] * 600
    zeros = [0.0] * 600
    refused("context", passed(text=long, target_tokens=long, logprobs=zeros, advantages=zeros), "has 600 tokens")
    refused("path", lambda: training.load_state("tinker://../weights/x").result(), "is no path of a checkpoint")
    refused("absent", lambda: training.load_state("tinker://a/weights/x").result(), "there is no checkpoint")
    refused("rate", lambda: training.optim_step(types.AdamParams(learning_rate=-1.0)).result(), "`learning_rate` is -1")
    passed()()
    training.optim_step(adam()).result()
    training.save_state("twice").result()
    refused("name", lambda: training.save_state("twice").result(), "take another name")


def begin():
    _, training = client(21)
    data = texts(training)
    before = [step(training, data) for _ in range(3)]
    path = training.save_state("before").result().path
    after = [step(training, data) for _ in range(3)]
    print(json.dumps({"path": path, "before": before, "after": after}))


def go_on(path):
    training = tinker.ServiceClient().create_training_client_from_state_with_optimizer(path)
    training = training.result() if hasattr(training, "result") else training
    data = texts(training)
    print(json.dumps({"after": [step(training, data) for _ in range(3)]}))


if __name__ == "__main__":
    {"loops": loops, "mistakes": mistakes, "begin": begin, "go_on": go_on}[sys.argv[1]](*sys.argv[2:])
