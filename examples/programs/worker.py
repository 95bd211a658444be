"""A worker: one process that plays the episodes of search.py one after another.

`maverl` starts it `processes` times. Started by hand, with the address and the key of a run in MAVERL_GATEWAY_URL and
MAVERL_GATEWAY_KEY, it attaches to the run from outside.
"""

import json
import os
import sys
import urllib.error
import urllib.request

import search

ROOT, KEY = os.environ["MAVERL_GATEWAY_URL"], os.environ["MAVERL_GATEWAY_KEY"]


def post(url, body, key):
    head = {"authorization": "Bearer " + key, "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer) if answer.status == 200 else {}


while True:
    try:
        claimed = post(ROOT + "/claim", {"worker": "search", "wait_s": 20}, KEY)
    except OSError as error:  # 410, or the end of the connection: the run is over
        sys.exit(f"no more episodes: {error}")
    for episode in claimed.get("episodes", []):
        try:
            if report := search.play(episode):
                post(episode["base_url"].removesuffix("/v1") + "/finish", report, episode["api_key"])
        except urllib.error.HTTPError as error:
            if error.code != 409:  # 409: the episode was over, such as by its time limit
                raise
