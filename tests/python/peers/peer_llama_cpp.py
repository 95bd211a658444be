"""llama.cpp through the functions of its C library. Keys and values are in f16, as they are by default."""

import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import llama_cpp as lib
from measure import Figure, repeat
from work import PROMPT, REPLY, ROWS, SHAPES, random_ids

PACKAGES = ["llama-cpp-python", "gguf", "numpy"]


def simd():
    """Returns the names of the instructions and options that the library was built with."""
    return " ".join(re.findall(r"(\w+) = 1", lib.llama_print_system_info().decode()))


def limit(dtype):
    """Returns nothing: the library has no function that multiplies matrices."""


@lib.llama_log_callback
def ignore(level, text, data):
    """Prints nothing of what the library reports."""


class Decoder:
    """A model that decodes several sequences at once."""

    def __init__(self, args, sequences):
        lib.llama_log_set(ignore, ctypes.c_void_p(0))
        lib.llama_backend_init()
        self.prompts = random_ids(sequences, PROMPT, SHAPES[args.size].vocab)
        self.model = load(args)
        self.context = lib.llama_init_from_model(self.model, self.settings(args, sequences))
        self.batch = lib.llama_batch_init(sequences * PROMPT, 0, 1)
        self.sampler = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        lib.llama_sampler_chain_add(self.sampler, lib.llama_sampler_init_temp(1.0))
        lib.llama_sampler_chain_add(self.sampler, lib.llama_sampler_init_dist(0))

    @staticmethod
    def settings(args, sequences):
        """Returns the settings of the context: room for every sequence, and one batch for all prompts."""
        settings = lib.llama_context_default_params()
        settings.n_ctx = sequences * (PROMPT + REPLY)
        settings.n_batch = sequences * PROMPT
        settings.n_seq_max = sequences
        settings.n_threads = settings.n_threads_batch = args.threads
        return settings

    def decode(self, rows):
        """Computes tokens, given as `(token, place, sequence, wants logits)`."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, place, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, place, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        code = lib.llama_decode(self.context, batch)
        assert code == 0, f"llama_decode: {code}"

    def keep(self, tokens):
        """Forgets all but so many tokens of each sequence."""
        memory = lib.llama_get_memory(self.context)
        for sequence in range(len(self.prompts)):
            lib.llama_memory_seq_rm(memory, sequence, tokens, -1)

    def prefill(self, end):
        """Computes the prompts up to `end`, and the logits of the last token of whole prompts."""
        places = [(sequence, place) for sequence in range(len(self.prompts)) for place in range(end)]
        self.decode([(self.prompts[s][place], place, s, place == PROMPT - 1) for s, place in places])

    def sample(self, rows):
        """Returns a token for each of the rows with logits."""
        return [lib.llama_sampler_sample(self.sampler, self.context, row) for row in rows]

    def extend(self, tokens, place):
        """Computes the next token of each sequence, and returns the tokens after it."""
        self.decode([(token, place, sequence, True) for sequence, token in enumerate(tokens)])
        return self.sample(range(len(tokens)))


def load(args):
    """Returns a model with random weights. Another process writes its file, whose memory is not that of this process."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/model.gguf"
        script = Path(__file__).with_name("random_gguf.py")
        subprocess.run([sys.executable, script, args.size, args.dtype, path], check=True)
        model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    assert model, f"llama.cpp does not load {path}"
    return model


def rollout(args):
    """Measures new tokens per second of 64 sequences: prefill and decoding."""
    decoder, shape = Decoder(args, ROWS), SHAPES[args.size]

    def work():
        decoder.prefill(PROMPT)
        tokens = decoder.sample(range(PROMPT - 1, ROWS * PROMPT, PROMPT))
        for place in range(PROMPT, PROMPT + REPLY - 1):
            tokens = decoder.extend(tokens, place)

    watch = repeat(args.repeats, work, prepare=lambda: decoder.keep(0))
    flop = shape.rollout_flop(PROMPT + REPLY, REPLY) / REPLY
    return [Figure.rate(f"{ROWS} rows", "new tokens/s", ROWS * REPLY, watch, flop=flop)]


def one(args):
    """Measures new tokens per second of one request, whose prompt is cached but for its last token."""
    decoder = Decoder(args, sequences=1)
    decoder.prefill(PROMPT - 1)

    def work():
        tokens = decoder.prompts[0][-1:]
        for place in range(PROMPT - 1, PROMPT + REPLY - 1):
            tokens = decoder.extend(tokens, place)

    watch = repeat(args.repeats, work, prepare=lambda: decoder.keep(PROMPT - 1))
    return [Figure.rate("1 request", "new tokens/s", REPLY, watch)]
