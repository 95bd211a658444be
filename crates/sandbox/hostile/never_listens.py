# Never reads what it is asked.
import time
def solve(x):
    return None
send = __import__("os").write
send(3, b'\0\0\0\x0f{"value": null}')
time.sleep(1000)
