"""torch, transformers and TRL: generation and updates with transformers' model, GRPO and SFT with TRL's trainers."""

import tempfile
from contextlib import nullcontext

import torch
from measure import Figure, repeat, repeat_many
from transformers import AutoModelForCausalLM, DynamicCache, GenerationConfig
from trl.trainer.utils import selective_log_softmax
from trl_trainers import grpo_steps, sft_steps
from with_torch import config, limit, product, simd
from work import (
    ARRAY,
    EPISODES,
    GROUP,
    LONG,
    PRODUCTS,
    PROMPT,
    REPLY,
    ROWS,
    SHAPES,
    TREES,
    TURN_REPLY,
    random_ids,
    turn_prompts,
)

PACKAGES = ["torch", "transformers", "trl", "accelerate", "datasets", "tokenizers", "numpy"]


def random_model(args, context=1024):
    """Returns a model with random weights."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    return AutoModelForCausalLM.from_config(config(args.size, context), dtype=dtype)


def cast(args):
    """Returns the context in which products are computed in bf16 for `autocast`."""
    return torch.autocast("cpu", torch.bfloat16) if args.dtype == "autocast" else nullcontext()


class Generator:
    """A model that samples replies of exactly `REPLY` tokens at temperature 1."""

    def __init__(self, args):
        self.args, self.model = args, random_model(args).eval()
        self.model.generation_config = GenerationConfig(
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=REPLY, eos_token_id=None, pad_token_id=0
        )

    @torch.inference_mode()
    def cached(self, ids):
        """Returns a cache with keys and values of prompts, without those of their last token."""
        cache = DynamicCache(config=self.model.config)
        with cast(self.args):
            self.model(input_ids=ids[:, :-1], past_key_values=cache, logits_to_keep=1)
        return cache

    @torch.inference_mode()
    def replies(self, ids, cache=None):
        with cast(self.args):
            out = self.model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), past_key_values=cache)
        assert out.shape == (len(ids), PROMPT + REPLY), out.shape


def rollout(args):
    """Measures new tokens per second: prefill and decoding by `generate`."""
    generator, shape = Generator(args), SHAPES[args.size]
    ids = torch.tensor(random_ids(ROWS, PROMPT, shape.vocab))
    watch = repeat(args.repeats, lambda: generator.replies(ids))
    flop = shape.rollout_flop(PROMPT + REPLY, REPLY) / REPLY
    return [Figure.rate(f"{ROWS} rows", "new tokens/s", ROWS * REPLY, watch, flop=flop)]


def one(args):
    """Measures new tokens per second of one request, whose prompt is cached."""
    generator = Generator(args)
    ids = torch.tensor(random_ids(1, PROMPT, SHAPES[args.size].vocab))
    cache = generator.cached(ids)

    def forget():
        cache.crop(PROMPT - 1 - cache.get_seq_length())

    watch = repeat(args.repeats, lambda: generator.replies(ids, cache), prepare=forget)
    return [Figure.rate("1 request", "new tokens/s", REPLY, watch)]


class Learner:
    """A model with AdamW, updated by the clipped surrogate."""

    def __init__(self, args, context=1024):
        self.args, self.model = args, random_model(args, context).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, weight_decay=0.0, fused=True)

    def logprobs(self, ids, prompt):
        """Returns the log-probabilities of the tokens behind the prompts."""
        kept = ids.shape[1] - prompt
        with cast(self.args):
            logits = self.model(input_ids=ids, use_cache=False, logits_to_keep=kept + 1).logits
            return selective_log_softmax(logits[:, :-1], ids[:, -kept:]).float()

    def update(self, batches):
        """Makes an optimizer step with batches of rows, each with the length of its prompts. Rows of a batch are equally long."""
        tokens = sum(ids[:, prompt:].numel() for ids, prompt in batches)
        for ids, prompt in batches:
            logprobs = self.logprobs(ids, prompt)
            ratio = torch.exp(logprobs - logprobs.detach())
            advantages = 1.0 - 2.0 * (torch.arange(len(ids)) % 2)[:, None]
            surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
            (-surrogate.sum() / tokens).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def micro_batches(args, rows, tokens, prompt):
    """Returns batches of random rows, as many rows at once as the arguments say."""
    ids = torch.tensor(random_ids(rows, tokens, SHAPES[args.size].vocab))
    return [(part, prompt) for part in ids.split(args.micro_rows)]


def train_rows(args, what, rows, tokens):
    """Measures tokens per second of an update with rows, whose first token is the prompt."""
    learner, batches = Learner(args, context=tokens), micro_batches(args, rows, tokens, prompt=1)
    watch = repeat(args.repeats, lambda: learner.update(batches))
    flop = SHAPES[args.size].training_flop(tokens)
    return [Figure.rate(what, "tokens/s", rows * tokens, watch, flop=flop)]


def train(args):
    """Measures an update with 64 rows of 128 tokens."""
    return train_rows(args, f"{ROWS} rows", ROWS, PROMPT + REPLY)


def long(args):
    """Measures an update with one long row."""
    return train_rows(args, f"1 row of {LONG} tokens", 1, LONG)


def tree(args):
    """Measures updates with the turns of episodes. Each row is computed alone, as TRL does, from its first token on, though it
    begins as others do. Rows of equal length are a batch, so that nothing is padded."""
    learner, figures = Learner(args), []
    for name, turns, keeps_words in TREES:
        prompts = turn_prompts(turns, keeps_words)
        batches = [batch for n in prompts for batch in micro_batches(args, EPISODES, n + TURN_REPLY, n)]
        watch = repeat(args.repeats, lambda: learner.update(batches))
        tokens = EPISODES * sum(n + TURN_REPLY for n in prompts)
        figures.append(Figure.milliseconds(f"{EPISODES} {name}, {tokens} of {tokens} tokens", "ms/update", watch))
    return figures


def grpo(args):
    """Measures steps per minute of TRL's trainer: 8 replies to each of 8 prompts, rewards, an update. A reply may stop before
    `REPLY` tokens; the figure has their mean length."""
    with tempfile.TemporaryDirectory() as directory:
        watch, tokens = grpo_steps(args, random_model(args), directory)
    what = f"{ROWS // GROUP} prompts x {GROUP} replies"
    return [Figure.rate(what, "steps/min", 60, watch, details={"reply_tokens": tokens})]


def sft(args):
    """Measures tokens per second of TRL's trainer on 64 texts of 128 tokens a step."""
    with tempfile.TemporaryDirectory() as directory:
        watch = sft_steps(args, random_model(args), directory)
    flop = SHAPES[args.size].training_flop(PROMPT + REPLY)
    return [Figure.rate(f"{ROWS} rows", "tokens/s", ROWS * (PROMPT + REPLY), watch, flop=flop)]


def matmul(args):
    """Measures matrix products in both types."""
    torch.set_num_threads(args.threads)
    figures = []
    for sizes in PRODUCTS:
        for name, dtype in [("f32", torch.float32), ("bf16", torch.bfloat16)]:
            values, watch = product(sizes, dtype, args.repeats)
            figures.append(Figure(f"{' x '.join(map(str, sizes))} {name}", "GFLOP/s", values, watch))
    return figures


def bandwidth(args):
    """Measures copying and reading of arrays larger than any cache."""
    torch.set_num_threads(args.threads)
    source, target = torch.ones(ARRAY // 4), torch.zeros(ARRAY // 4)
    copies, copied = repeat_many(args.repeats, lambda: target.copy_(source))
    reads, read = repeat_many(args.repeats, source.sum)
    return [
        Figure.rate("memory, copy (read + write)", "GB/s", 2 * ARRAY * copied / 1e9, copies),
        Figure.rate("memory, read", "GB/s", ARRAY * read / 1e9, reads),
    ]
