"""A model file of llama.cpp with random weights: `python random_gguf.py SIZE DTYPE FILE`."""

import sys

import gguf
import numpy
from work import SHAPES


def tensors(shape):
    """Yields the name of each tensor and its dimensions, the last of which is the one of a row."""
    yield "token_embd.weight", (shape.vocab, shape.hidden)
    yield "output_norm.weight", (shape.hidden,)
    for layer in range(shape.layers):
        rows = {"attn_q": shape.hidden, "attn_k": shape.kv_width, "attn_v": shape.kv_width}
        for name, width in rows.items():
            yield f"blk.{layer}.{name}.weight", (width, shape.hidden)
            yield f"blk.{layer}.{name}.bias", (width,)
        yield f"blk.{layer}.attn_output.weight", (shape.hidden, shape.hidden)
        for name in ["ffn_gate", "ffn_up"]:
            yield f"blk.{layer}.{name}.weight", (shape.inner, shape.hidden)
        yield f"blk.{layer}.ffn_down.weight", (shape.hidden, shape.inner)
        for name in ["attn_norm", "ffn_norm"]:
            yield f"blk.{layer}.{name}.weight", (shape.hidden,)


def add_settings(writer, shape):
    """Adds the settings of the model, which has no tokenizer."""
    writer.add_context_length(1024)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(shape.vocab)


def write(size, dtype, path):
    """Writes a model: matrices of the type, vectors in f32."""
    draw = numpy.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "qwen2", use_temp_file=True)
    add_settings(writer, SHAPES[size])
    for name, dims in tensors(SHAPES[size]):
        values = 0.02 * draw.standard_normal(dims, dtype=numpy.float32) + float(name.endswith("norm.weight"))
        if dtype == "bf16" and len(dims) == 2:
            values = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(name, values, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(*sys.argv[1:])
