"""Runs of `--model trials` that are killed: the scenes of test_trials_kills.py.

Run as `python -m _support.trials_runs SCENE ARGUMENTS`. The harness is imported once and the runs
are forked, so that a kill costs milliseconds. Every trial that a run has committed is appended to a
file, one line per trial. A run that ends writes its results as JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import signal
import sys
import time
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager, get_task_dict

from _support.forked_processes import fork, run_together, wait_for
from lm_eval_bayes._util.files import task_configs_dir
from lm_eval_bayes.harness.models.trial_sink import StoreSink
from lm_eval_bayes.harness.models.trials import TrialsLM

TASK = "demo_arithmetic_bayes"
CONFIGS = task_configs_dir()
#: 40 questions, this many trials each; a line of the record has about so many bytes.
N, LINE = 40, 115


def digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def acknowledging(descriptor):
    """Have every commit of this process written down once it is done."""
    keep = StoreSink.add

    def add_and_report(self, trial):
        stored = keep(self, trial)
        line = f"{stored.key.prompt} {stored.trial} {digest(stored.text)}\n"
        os.write(descriptor, line.encode("ascii"))
        return stored

    StoreSink.add = add_and_report


def load_task():
    manager = TaskManager(
        include_path=str(CONFIGS), include_defaults=False, metadata={"bayes_n": N}
    )
    return get_task_dict([TASK], manager)[TASK]


def run(task, store, target=None, acknowledged=None):
    """Run the task on a store; write what came out."""
    if acknowledged is not None:
        acknowledging(acknowledged)
    lm = TrialsLM(backend="biased_coin", store=str(store), beta="2:2")
    # Not simple_evaluate, which asks torch about the computer for longer than all the rest takes.
    result = lm_eval.evaluate(lm=lm, task_dict={TASK: task}, bootstrap_iters=0, log_samples=True)
    samples = sorted(result["samples"][TASK], key=lambda sample: sample["doc_id"])
    fields = ("doc_id", "doc_hash", "resps", "filtered_resps", "outcomes", "answers", "signals")
    if target is not None:
        came = {
            "rows": result["results"][TASK],
            "samples": [{name: sample[name] for name in fields} for sample in samples],
            "trials": lm.get_model_info()["trials"],
        }
        Path(target).write_text(json.dumps(came), encoding="utf-8")


def killed(folder, kills, seed):
    """A whole run, one that is killed at random moments, and what it comes to in the end."""
    folder, rng = Path(folder), random.Random(int(seed))
    task = load_task()
    start = time.monotonic()
    codes = wait_for([fork(lambda: run(task, folder / "whole.sqlite", folder / "whole.json"))])
    assert codes == [0]
    duration = time.monotonic() - start
    record = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store, codes, sizes, kills = folder / "killed.sqlite", [], [], int(kills)
    for i in range(kills):
        size = os.fstat(record).st_size
        child = fork(lambda: run(task, store, acknowledged=record))
        moment = time.monotonic() + duration * rng.random()
        # Of every four one is killed while it opens the store and looks up what is there, and
        # three after a random number of commits, so that all of them together get nearly as far
        # as the run; the last ones are killed anywhere in what is left, the grading included.
        if i >= 0.8 * kills:
            goal = math.inf
        elif i % 4 == 0:
            goal = size
        else:
            moment, goal = math.inf, size + LINE * 40 * N / kills * 3 * rng.random()
        while time.monotonic() < moment and os.fstat(record).st_size <= goal and not _ended(child):
            time.sleep(0.0003)
        os.kill(child, signal.SIGKILL)
        codes += wait_for([child])
        sizes.append(os.fstat(record).st_size - size)
    resumed = wait_for([fork(lambda: run(task, store, folder / "killed.json", record))])
    again = wait_for([fork(lambda: run(task, store, folder / "again.json"))])
    print(
        json.dumps({"codes": codes, "sizes": sizes, "ends": [*resumed, *again], "whole": duration})
    )


def _ended(child):
    """Whether a child is a zombie by now; it is left to be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def together(folder, runs):
    """Runs that begin at one moment on one store, which does not exist yet."""
    folder, task = Path(folder), load_task()
    store = folder / "shared.sqlite"
    run_together(int(runs), lambda number: run(task, store, folder / f"{number}.json"))


if __name__ == "__main__":
    {"killed": killed, "together": together}[sys.argv[1]](*sys.argv[2:])
