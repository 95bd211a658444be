# Asks the internet.
import urllib.request
try:
    urllib.request.urlopen("http://example.com", timeout=1)
    print("ESCAPED")
except Exception:
    pass
def solve(x):
    return None
