"""A server on this machine that answers instead of a model, for the scripts in this folder."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: By model and question, the answers of four rollouts; "fail" is an error of the server.
ANSWERS = {
    "org/weak": ["2 2 3 2", "5 4 5 5", "6 6 fail 7", "8 8 8 8"],
    "org/strong": ["2 2 2 2", "4 4 5 4", "6 6 6 6", "9 8 8 8"],
}
#: How often every question was asked of every model.
asked: dict[tuple[str, str], int] = {}


class Server(BaseHTTPRequestHandler):
    """Finds the answer by the question and how often it was asked; subclasses `reply`."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model, text = body["model"], str(body["messages"][-1]["content"])
        number = int(re.search(r"(\d) \+", text)[1]) - 1
        turn = asked.get((model, text), 0)
        asked[model, text] = turn + 1
        self.reply(model, ANSWERS[model][number].split()[turn], turn)

    def send(self, status, kind, text):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


def serve(handler):
    """Serve in the background; return the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
