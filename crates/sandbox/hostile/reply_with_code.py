# Sends values that name things to run.
import json, os
values = [{"tuple": "ab", "eval": "1"}, {"eval": "__import__('os')._exit(0)"}, {"__reduce__": ["os.system", ["true"]]}, {"set": [{"dict": []}]}, {"int": "zz"}, {"dict": [[{"dict": []}, 1]]}, {"complex": [10 ** 400, 0]}, {"bytes": [1]}, {"int": "f" * 3000000}]
def solve(x):
    data = json.dumps({"value": values[x % len(values)]}).encode()
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(3, data):]
