"""Starts the server of a tracker at a port of this machine.

    python tracker_server.py mlflow|trackio|wandb FOLDER PORT

The first two are the servers of the packages. That of W&B is a stand-in for `wandb sync`, which writes the rows that it gets into
FOLDER/rows.jsonl. The token of trackio is that of TRACKIO_WRITE_TOKEN.
"""

import gzip
import json
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def start_mlflow(folder, port):
    store = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/artifacts"]
    address = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", "server", *store, *address])


def start_trackio(folder, port):
    os.environ["TRACKIO_DIR"] = folder
    import trackio

    trackio.show(host="127.0.0.1", server_port=port, open_browser=False, block_thread=True)


class Wandb(BaseHTTPRequestHandler):
    """Answers what `wandb sync` asks: a run that is inserted, tables that are there already, and streams of files."""

    folder = ""
    BUCKET = {
        "id": "1", "name": "run", "displayName": "run", "description": "", "config": "{}", "sweepName": None, "historyLineCount": 0,
        "project": {"id": "1", "name": "maverl", "entity": {"id": "1", "name": "me"}},
    }  # fmt: skip
    ANSWERS = {
        "UpsertBucket": {"upsertBucket": {"bucket": BUCKET, "inserted": True}},
        "CreateArtifact": {"createArtifact": {"artifact": {"id": "1", "state": "COMMITTED", "artifactSequence": {"id": "1"}}}},
        "CreateRunFiles": {"createRunFiles": {"runID": "1", "uploadHeaders": [], "files": []}},
    }

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        answer = {}
        if self.path == "/graphql":
            operation = re.search(r"(?:query|mutation)\s+(\w+)", json.loads(body)["query"])[1]
            answer = {"data": self.ANSWERS.get(operation, {})}
        elif self.path.endswith("/file_stream"):
            rows = json.loads(body).get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            with open(f"{self.folder}/rows.jsonl", "a") as file:
                file.writelines(row + "\n" for row in rows)
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def start_wandb(folder, port):
    Wandb.folder = folder
    ThreadingHTTPServer(("127.0.0.1", port), Wandb).serve_forever()


if __name__ == "__main__":
    start = {"mlflow": start_mlflow, "trackio": start_trackio, "wandb": start_wandb}[sys.argv[1]]
    start(sys.argv[2], int(sys.argv[3]))
