"""Measures a program beside which maverl is compared, with the work of `maverl bench`. Prints one line of JSON.

    python bench.py trl rollout M f32 --repeats 5      # torch and transformers; `grpo` and `sft` are trainers of TRL
    python bench.py trl train M bf16 --tuned           # an allocator that keeps memory
    python bench.py vllm rollout L bf16 --threads 2
    python bench.py llama-cpp one L bf16

`just peers` makes the environment of each peer: `.venv-trl`, `.venv-vllm` and `.venv-llama-cpp`, beside this file. Models have
random weights; nothing is downloaded. The fields are those of `maverl bench --json`. `values` has every measurement, `other_cores`
the processors that other processes kept busy meanwhile: above 0.15, measure again.
"""

import argparse
import importlib
import json
import os
import sys

import measure
import work

# Parts of each peer.
PARTS = {
    "trl": ["rollout", "train", "grpo", "sft", "tree", "long", "one", "matmul", "bandwidth"],
    "vllm": ["rollout", "one"],
    "llama-cpp": ["rollout", "one"],
}
# Settings by which libraries neither download anything nor print anything but errors.
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}
# glibc keeps freed memory, and asks for huge pages. Else it gives large tensors back to the system, and takes them again.
TUNABLES = ["hugetlb=1", "mmap_max=0", "trim_threshold=17179869184", "top_pad=268435456"]


def arguments():
    """Returns the arguments of the command line."""
    lines = __doc__.splitlines()
    parser = argparse.ArgumentParser(description=lines[0], epilog=f"Parts: {PARTS}")
    parser.add_argument("peer", choices=PARTS)
    parser.add_argument("part")
    parser.add_argument("size", nargs="?", choices=["S", "M", "L"], default="S")
    parser.add_argument("dtype", nargs="?", choices=["f32", "bf16", "autocast"], default="f32",
                        help="of weights; `autocast`: f32, with products in bf16 (trl alone)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[default: one per core]")
    parser.add_argument("--repeats", type=int, default=5, help="number of measurements, after one that is not counted")
    parser.add_argument("--micro-rows", type=int, default=64, help="rows of an update that are computed at once (trl alone)")
    parser.add_argument("--tuned", action="store_true", help="the allocator keeps freed memory and asks for huge pages")
    args = parser.parse_args()
    if args.part not in PARTS[args.peer]:
        parser.error(f"`{args.peer}` has no part `{args.part}`; its parts are {', '.join(PARTS[args.peer])}")
    if args.micro_rows < 1 or work.ROWS % args.micro_rows:
        parser.error(f"`--micro-rows {args.micro_rows}`: give a number that divides {work.ROWS}")
    if args.dtype == "autocast" and args.peer != "trl":
        parser.error(f"`{args.peer}` has no dtype `autocast`; its types are f32 and bf16")
    return args


def vllm_environment(threads):
    """Returns what vLLM sets for its workers, of which there is none here: the engine is in this process. Threads of Intel's OpenMP,
    which vLLM recommends, are bound to cores, and the cache has 1 GiB."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))
    return {
        "KMP_AFFINITY": f"granularity=fine,explicit,proclist=[{cores}]",
        "KMP_BLOCKTIME": "5",
        "KMP_TPAUSE": "0",
        "LD_PRELOAD": f"{sys.prefix}/lib/libiomp5.so",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }


def set_environment(args):
    """Starts this program again with the variables that libraries read when they are loaded, unless they are set."""
    wanted = QUIET | {name: str(args.threads) for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS"]}
    if args.peer == "vllm":
        wanted |= vllm_environment(args.threads)
    if args.tuned:
        wanted["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{name}" for name in TUNABLES)
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def main():
    args = arguments()
    set_environment(args)
    try:
        peer = importlib.import_module(f"peer_{args.peer.replace('-', '_')}")
    except ModuleNotFoundError as error:
        sys.exit(f"{sys.executable} has no package `{error.name}`: `just peers` makes `.venv-{args.peer}` beside this file")
    figures = getattr(peer, args.part)(args)
    print(json.dumps(measure.report(args, peer, figures)))


if __name__ == "__main__":
    main()
