"""How many slots of a server are busy: the fixed run, and `lm-eval-bayes run`, at equal N.

A local server answers like an OpenAI-compatible one; its latencies are log-normal, a function of
prompt and seed. The fixed run samples N trials of every question. The runs with a stopping rule
sample on the same seeds: one to --max-trials N, one that stops at N by its width while further
trials would be allowed. Shown are the seconds from the first request to the last look, to the last
answer and to the results, and the mean share of slots that are busy until the last look.

    python examples/sampling_slots.py                      # 800 trials, about two minutes
    python examples/sampling_slots.py --questions 10 --slots 8 --median 0.05
"""

import argparse
import asyncio
import json
import operator
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SUM = re.compile(r"(\d+)\s*(\+|-|times|divided by)\s*(\d+)\s*\?")
OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "times": operator.mul,
    "divided by": operator.floordiv,
}
TASK = "demo_arithmetic_bayes"


class Server:
    """Answers completions after log-normal latencies, and notes when each began and ended."""

    def __init__(self, median_s, sigma):
        self.median_s, self.sigma, self.spans = median_s, sigma, []
        self.port, self._ready = 0, threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait()

    async def _serve(self):
        from aiohttp import web

        application = web.Application()
        application.router.add_post("/v1/completions", self._complete)
        runner = web.AppRunner(application, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        self._ready.set()
        await asyncio.Event().wait()

    async def _complete(self, request):
        from aiohttp import web

        body = await request.json()
        chance = random.Random(json.dumps([body["prompt"], body.get("seed")]))
        span = [time.monotonic(), None]
        if body.get("echo"):  # it measures the prompt, and generates nothing
            return web.json_response({"choices": [{"index": 0, "text": "", "logprobs": None}]})
        sums = SUM.findall(str(body["prompt"]))
        if not sums:  # it checks whether seeds are honoured
            return web.json_response({"choices": [{"index": 0, "text": f"{chance.random()}"}]})
        self.spans.append(span)
        try:
            await asyncio.sleep(self.median_s * chance.lognormvariate(0.0, self.sigma))
        finally:
            span[1] = time.monotonic()
        left, sign, right = sums[-1]
        answer = OPERATIONS[sign](int(left), int(right)) + chance.choice((0, 0, 1, -1))
        text = f" The answer is $\\boxed{{{answer}}}$."
        choice = {"index": 0, "text": text, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": {"completion_tokens": 9}})

    def busy(self, until, slots):
        """Return the mean share of busy slots from the first request to a time."""
        first = min(begin for begin, _ in self.spans)
        total = sum(max(0.0, min(end or until, until) - begin) for begin, end in self.spans)
        return total / (slots * (until - first))


def sampled(server, command, arguments, folder, settings):
    """Run a command on the server; return its figures and the widths of its looks."""
    server.spans.clear()
    lines = []
    model = (
        f"model=demo,base_url=http://127.0.0.1:{server.port}/v1/completions,"
        f"num_concurrent={settings.slots},tokenizer_backend=None,store={folder}/trials.sqlite"
    )
    process = subprocess.Popen(
        [
            *(*command, "--model", "trials"),
            *("--model_args", f"backend=local-completions,{model}", "--tasks", TASK),
            *("--limit", str(settings.questions), "--output_path", str(folder)),
            *("--log_samples", *arguments),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TERM": "dumb"},
    )
    for line in process.stderr:
        lines.append((time.monotonic(), line))
    if process.wait():
        raise SystemExit("".join(line for _, line in lines[-30:]))
    ended = time.monotonic()
    results = json.loads(next(Path(folder).rglob("results_*.json")).read_text())
    rounds = results["config"].get("stopping", {}).get("rounds", [])
    looks = [at for at, line in lines if f"{TASK}  N " in line]
    last_answer = max(end for _, end in server.spans if end)
    last_look = looks[-1] if looks else last_answer
    first = min(begin for begin, _ in server.spans)
    return {
        "requests": len(server.spans),
        "last look": last_look - first,
        "last answer": last_answer - first,
        "results": ended - first,
        "busy": server.busy(min(last_look, last_answer), settings.slots),
        "row": next(v for k, v in results["results"][TASK].items() if k.startswith("hbayes@")),
    }, [look["high"] - look["low"] for each in rounds for look in each["looks"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--median", type=float, default=0.44, help="seconds")
    parser.add_argument("--sigma", type=float, default=1.1)
    settings = parser.parse_args()
    server = Server(settings.median, settings.sigma)
    n, rows = str(settings.trials), []
    fixed = [sys.executable, "-m", "lm_eval", "run"]
    own = str(Path(sys.executable).with_name("lm-eval-bayes"))
    adaptive = [own, "run", "--batch-trials", str(settings.batch)]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name in ("fixed", "most", "width"):
            (work / name).mkdir()
        figures, _ = sampled(
            server,
            fixed,
            ["--metadata", json.dumps({"bayes_n": settings.trials})],
            work / "fixed",
            settings,
        )
        rows.append(("fixed", figures))
        figures, widths = sampled(
            server, [*adaptive, "--width", "1e-6", "--max-trials", n], [], work / "most", settings
        )
        rows.append((f"run --max-trials {n}", figures))
        width = [f"{widths[-1] + 1e-9:.12f}", "--max-trials", str(4 * settings.trials)]
        figures, _ = sampled(server, [*adaptive, "--width", *width], [], work / "width", settings)
        rows.append(("run --width", figures))
    print(f"{'':22}requests  last look  last answer  results   busy  hbayes@N")
    for name, figures in rows:
        print(
            f"{name:22}{figures['requests']:8d}  {figures['last look']:8.1f}s  "
            f"{figures['last answer']:10.1f}s  {figures['results']:6.1f}s  {figures['busy']:5.1%}"
            f"  {figures['row']:.6f}"
        )


if __name__ == "__main__":
    main()
