"""Prints the likeliest tokens of llama.cpp after a prompt, and the log-prob of the first (package `xllamacpp`).

Arguments: a JSON list of objects with `file`, `prompt` (token ids) and `count`.
Output: a JSON list with `[[id, ...], logprob]` for each.
"""

import json
import sys
import urllib.request

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
        "n_probs": 1,
        "cache_prompt": False,
        "ignore_eos": True,
        # A list of log-probs has one entry for several tokens whose bytes are no characters.
        "return_tokens": True,
    }
    server = xllamacpp.Server(params)
    body = json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    post = urllib.request.Request(server.listening_address + "/completion", body, headers)
    with urllib.request.urlopen(post) as response:
        answer = json.load(response)
    return [answer["tokens"], answer["completion_probabilities"][0]["logprob"]]


print(json.dumps([continuation(**case) for case in json.loads(sys.argv[1])]))
