# Starts a shell in every way.
import os, subprocess
if os.system("true") == 0:
    print("ESCAPED system")
for work in (lambda: subprocess.run(["/bin/sh", "-c", "true"]), lambda: os.popen("true").read(), lambda: os.posix_spawn("/bin/sh", ["sh"], {})):
    try:
        work()
        print("ESCAPED")
    except Exception:
        pass
def solve(x):
    return None
