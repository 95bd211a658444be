"""The measured work: shapes of models, numbers of tokens and of operations. All are those of `maverl bench`."""

import random
from dataclasses import dataclass

# Numbers of prompts, of tokens of a prompt and of a reply, and of replies to a prompt in GRPO.
ROWS, PROMPT, REPLY, GROUP = 64, 64, 64, 8
# Number of tokens of a long row.
LONG = 16_384
# Of chains and conversations: number of episodes; tokens of the beginning, of the words of a turn, and of its reply.
EPISODES, HEAD, WORDS, TURN_REPLY = 8, 40, 12, 16
# Names, numbers of turns, and if the words of turns before are kept.
TREES = [("chains of 3", 3, False), ("chains of 15", 15, False), ("20 turns", 20, True)]
# Rows, inner dimension and columns of matrix products.
PRODUCTS = [(512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (8192, 512, 1408), (64, 512, 1408)]
# The product whose speed limits a model.
LIMIT = (8192, 512, 1408)
# Bytes of the array for measuring memory.
ARRAY = 1 << 30


@dataclass(frozen=True)
class Shape:
    """Shape of a Qwen2 model with tied embeddings."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocab: int

    @property
    def kv_width(self):
        """Width of the keys of a token in a layer."""
        return self.kv_heads * self.hidden // self.heads

    def parameters(self):
        """Returns the number of parameters, with the embedding counted once."""
        attention = 2 * self.hidden * (self.hidden + self.kv_width) + self.hidden + 2 * self.kv_width
        layer = attention + 3 * self.hidden * self.inner + 2 * self.hidden
        return self.vocab * self.hidden + self.layers * layer + self.hidden

    def attention_flop(self, tokens):
        """Returns the operations of causal attention per token, averaged over a row."""
        return 4 * self.layers * self.hidden * tokens / 2

    def training_flop(self, tokens):
        """Returns the operations of training per token of a row."""
        return 6 * self.parameters() + 3 * self.attention_flop(tokens)

    def rollout_flop(self, tokens, new):
        """Returns the operations of generating a row whose last `new` tokens are sampled: only those need the head."""
        head = self.vocab * self.hidden
        return (2 * (self.parameters() - head) + self.attention_flop(tokens)) * tokens + 2 * head * new


SHAPES = {
    "S": Shape(hidden=128, layers=4, heads=4, kv_heads=2, inner=512, vocab=1024),
    "M": Shape(hidden=512, layers=8, heads=8, kv_heads=2, inner=1408, vocab=8192),
    "L": Shape(hidden=896, layers=24, heads=14, kv_heads=2, inner=4864, vocab=151_936),
}


def random_ids(rows, tokens, vocab):
    """Returns rows of random token ids, without the three special ones."""
    draw = random.Random(0)
    return [[draw.randrange(3, vocab) for _ in range(tokens)] for _ in range(rows)]


def turn_prompts(turns, keeps_words):
    """Returns the tokens of the prompt of each turn of an episode: what came before, and the words of the turn."""
    each = TURN_REPLY + (WORDS if keeps_words else 0)
    return [HEAD + turn * each + WORDS for turn in range(turns)]
