"""Prints the likeliest tokens of llama.cpp after a prompt, with their log-probs (package `xllamacpp`).

Arguments: a JSON list of objects with `file`, `prompt` (token ids) and `count`.
Output: a JSON list with a list `[[id, logprob], ...]` for each.
"""

import json
import sys

import xllamacpp


def continuation(file, prompt, count):
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_ctx = 256
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = 1
    # Keys and values of f32, so that near ties are decided as they are in f32.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    request = {
        "prompt": prompt,
        "n_predict": count,
        "temperature": 0.0,
        "logprobs": 1,
        "cache_prompt": False,
        "ignore_eos": True,
    }
    server = xllamacpp.Server(params)
    answer = server.handle_completions(request)
    answer = json.loads(answer) if isinstance(answer, str) else answer
    tokens = answer["choices"][0]["logprobs"]["content"]
    return [[token["id"], token["logprob"]] for token in tokens]


print(json.dumps([continuation(**case) for case in json.loads(sys.argv[1])]))
