"""Processes that share the trials of a run, with a loopback server that counts the requests.

Run as `python -m _support.shared_runs FOLDER ARGUMENTS_AS_JSON`. The harness is imported once and
the processes are forked, so that a kill costs milliseconds. The server, which answers after a
random time, is in this process, which no kill reaches.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from _support.forked_processes import fork, wait_for
from _support.scripted_server import Act, serving
from lm_eval_bayes.harness.instances import new_instance
from lm_eval_bayes.harness.models.openai.seed_check import PROMPTS
from lm_eval_bayes.harness.models.trials import TrialsLM
from lm_eval_bayes.store import claims as claims_module

QUESTIONS, LEASE_S = 40, 2.0


def responses(n, **arguments):
    """Return the responses to every question; the trials are shared."""
    lm = TrialsLM(backend="local-completions", model="hash", tokenizer_backend=None, **arguments)
    requests = []
    for number in range(QUESTIONS):
        settings = {"temperature": 1.0, "max_gen_toks": 64, "until": []}
        requests.append(
            new_instance({}, (f"What is {number} + 5?", settings), task="demo", repeats=n)
        )
    texts = lm.generate_until([r for r in requests for _ in range(n)], disable_tqdm=True)
    return [[str(text) for text in texts[i * n : (i + 1) * n]] for i in range(QUESTIONS)]


class Requests:
    """The requests for trials that a server got, as [prompt, seed], with random latencies."""

    def __init__(self, latency_s, seed):
        self.asked, self._lock = [], threading.Lock()
        self._latency_s, self._rng = latency_s, random.Random(seed)

    def script(self, number, body):
        if body.get("echo") or body["prompt"] in PROMPTS:
            return None  # it measures a prompt, or checks whether seeds are honoured
        with self._lock:
            self.asked.append([body["prompt"], body["seed"]])
            return Act(delay_s=self._latency_s * self._rng.lognormvariate(0.0, 0.5))


def scene(folder, n, own_stores, kills, seed, signum=signal.SIGKILL, elsewhere=False):
    """Two processes share a run; some are killed at random moments and started again.

    With SIGSTOP they are stopped for longer than their lease instead, and then go on. With
    `elsewhere` they do not know that they are on one computer, and have clocks of their own.
    """
    if elsewhere:
        claims_module.process_scope = lambda: None
    folder, rng = Path(folder), random.Random(seed)
    requests, codes = Requests(0.05, seed + 1), []
    with serving(requests.script) as server:

        def start(worker):
            store = folder / (f"job{worker}.sqlite" if own_stores else "shared.sqlite")
            if own_stores and rng.random() < 0.5:  # as on another node
                for path in folder.glob(f"{store.name}*"):
                    path.unlink()
            claims = {"claims": str(folder / "claims")} if own_stores else {}

            ahead_s = rng.uniform(-3e7, 3e7) if elsewhere else 0.0

            def work():
                _set_clocks(ahead_s)
                texts = responses(
                    n,
                    base_url=server.url(),
                    num_concurrent=8,
                    store=str(store),
                    trials="auto",
                    lease=LEASE_S,
                    **claims,
                )
                (folder / f"job{worker}.json").write_text(json.dumps(texts), encoding="utf-8")

            return fork(work)

        children = [start(0), start(1)]
        for kill in range(kills):
            goal = QUESTIONS * n * (kill + rng.random()) / (kills + 0.5)
            while len(requests.asked) < goal and not any(map(_ended, children)):
                time.sleep(0.002)
            worker = rng.randrange(2)
            os.kill(children[worker], signum)
            if signum == signal.SIGSTOP:
                time.sleep(3 * LEASE_S)
                os.kill(children[worker], signal.SIGCONT)
                continue
            codes += wait_for([children[worker]])
            children[worker] = start(worker)
        ends = wait_for(children)
    print(json.dumps({"ends": ends, "codes": codes, "asked": requests.asked}))


def _set_clocks(ahead_s):
    """Set the clocks of this process, as those of another computer are."""
    now, since_boot = time.time, time.monotonic
    time.time = lambda: now() + ahead_s
    time.monotonic = lambda: since_boot() + abs(ahead_s)


def _ended(child):
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


if __name__ == "__main__":
    scene(sys.argv[1], **json.loads(sys.argv[2]))
