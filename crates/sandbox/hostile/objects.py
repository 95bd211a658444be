# Returns what is no data.
import io, itertools, types
values = [lambda x: x, (i for i in range(3)), iter([]), io.StringIO(), types, object(), type, NotImplemented, ..., itertools.count(), memoryview(b"1")]
def solve(x):
    return values[x % len(values)]
