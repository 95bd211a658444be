# Removes, renames, links and replaces files of the outside.
import os
name = os.path.join(OUTSIDE_DIR, "maverl-escaped")
works = [lambda: os.unlink(OUTSIDE), lambda: os.rename(OUTSIDE, name), lambda: os.replace(OUTSIDE, OUTSIDE + "2"), lambda: os.link(OUTSIDE, name), lambda: os.link(OUTSIDE, "/tmp/hard"), lambda: os.symlink("/etc", name), lambda: os.mkdir(name), lambda: os.rmdir(OUTSIDE_DIR), lambda: os.mkfifo(name), lambda: os.mknod(name), lambda: os.rename("/usr/lib", "/usr/gone"), lambda: os.rename(OUTSIDE, "/tmp/here"), lambda: open(name, "x"), lambda: os.open(OUTSIDE_DIR, os.O_TMPFILE | os.O_RDWR)]
for number, work in enumerate(works):
    try:
        work()
        print("ESCAPED", number)
    except OSError:
        pass
def solve(x):
    return None
