# Sends replies with the same key twice, and constants that are no JSON.
import os
replies = [b'{"value": 0, "value": 1}', b'{"value": NaN}', b'{"value": -Infinity}', b'{"value": 1e999}', b'{"value": {"tuple": [NaN]}}', b'{"raise": ["ValueError", ""], "raise": ["StopIteration", ""]}', b'\xef\xbb\xbf{"value": 1}', b'{"value": "\\ud800"}', b'{"value": ' + b"9" * 5000 + b"}"]
def solve(x):
    data = replies[x % len(replies)]
    os.write(3, len(data).to_bytes(4, "big") + data)
