"""``python -m maverl`` is the program ``maverl``."""

import os
import subprocess
import sys

from ._binary import find_binary
from ._error import Error


def main() -> int:
    """Replaces this process by the program; on Windows, where that is not possible, runs it."""
    try:
        command = [find_binary(), *sys.argv[1:]]
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if os.name == "nt":
        return subprocess.run(command).returncode
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
