# Writes on the wire what is nearly an exception.
import json, os
replies = [{"raise": []}, {"raise": ["ValueError"]}, {"raise": ["ValueError", "", ""]}, {"raise": ["ValueError", 1]}, {"raise": [1, ""]}, {"raise": None}, {"raise": "StopIteration"}, {"raise": {"StopIteration": ""}}, {"raise": [["StopIteration"], ""]}, {"broken": "x"}, {"undefined": "x"}, {"value": {"raise": ["StopIteration", ""]}}, {"Value": 5}, []]
def solve(x):
    data = json.dumps(replies[x % len(replies)]).encode()
    os.write(3, len(data).to_bytes(4, "big") + data)
