# Starts threads for as long as it can.
import threading, time
for count in range(100000):
    try:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    except RuntimeError:
        break
if count > 1000:
    print("ESCAPED", count)
def solve(x):
    return None
