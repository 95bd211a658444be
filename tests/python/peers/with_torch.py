"""Models, products and paths of torch."""

import statistics

import torch
from measure import repeat_many
from transformers import Qwen2Config
from work import LIMIT, SHAPES

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "autocast": torch.bfloat16}


def config(size, context=1024):
    """Returns the configuration of a model of a size."""
    shape = SHAPES[size]
    return Qwen2Config(
        architectures=["Qwen2ForCausalLM"],
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.inner,
        vocab_size=shape.vocab,
        max_position_embeddings=context,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )


def simd():
    """Returns the vector instructions in use."""
    return torch.backends.cpu.get_cpu_capability()


def product(sizes, dtype, repeats):
    """Measures a matrix product of `(rows, inner, columns)`. Returns GFLOP/s of each repeat, and the watch."""
    rows, inner, columns = sizes
    left, right = torch.randn(rows, inner).to(dtype), torch.randn(inner, columns).to(dtype)
    out = torch.empty(rows, columns, dtype=dtype)
    watch, calls = repeat_many(repeats, lambda: torch.matmul(left, right, out=out))
    flop = 2 * rows * inner * columns * calls
    return [flop / seconds / 1e9 for seconds in watch.seconds], watch


def limit(dtype):
    """Returns GFLOP/s of the large product of a model."""
    return statistics.median(product(LIMIT, DTYPES[dtype], repeats=3)[0])
