"""Runs of `--model trials` that are killed: the scenes of test_trials_kills.py.

Run as `python -m _support.trials_runs SCENE ARGUMENTS`. The harness is imported once and the runs
are forked, so that a kill costs milliseconds. A kill comes at a time of the run's own CPU, so that
a busy machine moves none: the timer's signal ends a process as SIGKILL does. Every trial that a run
has committed is appended to a file, one line per trial. A run that ends writes its results as JSON.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import random
import resource
import signal
import sys
from functools import partial
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager, get_task_dict

from _support.forked_processes import fork, run_together, wait_for
from lm_eval_bayes._util.files import task_configs_dir
from lm_eval_bayes.harness.models.trial_sink import StoreSink
from lm_eval_bayes.harness.models.trials import TrialsLM

TASK = "demo_arithmetic_bayes"
CONFIGS = task_configs_dir()
#: 40 questions, this many trials each.
N = 40


def digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def kill_after(seconds):
    """End this process, without its doing, once it has used so much more CPU time."""
    signal.setitimer(signal.ITIMER_PROF, max(seconds, 1e-6))


def acknowledging(descriptor, kill_at):
    """Have every commit of this process written down once it is done; die soon after the n-th."""
    keep, done = StoreSink.add, itertools.count(1)

    def add_and_report(self, trial):
        stored = keep(self, trial)
        line = f"{stored.key.prompt} {stored.trial} {digest(stored.text)}\n"
        os.write(descriptor, line.encode("ascii"))
        if next(done) == kill_at:
            kill_after(0)
        return stored

    StoreSink.add = add_and_report


def load_task():
    manager = TaskManager(
        include_path=str(CONFIGS), include_defaults=False, metadata={"bayes_n": N}
    )
    return get_task_dict([TASK], manager)[TASK]


def run(task, store, target=None, acknowledged=None, killed=(math.inf, math.inf)):
    """Run the task on a store; write what came out."""
    moment, goal = killed
    if acknowledged is not None:
        acknowledging(acknowledged, goal)
    if moment < math.inf:
        kill_after(moment)
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
    codes = wait_for([fork(lambda: run(task, folder / "whole.sqlite", folder / "whole.json"))])
    assert codes == [0]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    duration = used.ru_utime + used.ru_stime
    record = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store, codes, sizes, kills = folder / "killed.sqlite", [], [], int(kills)

    for i in range(kills):
        # Of every four one is killed while it opens the store and looks up what is there, and
        # three a tick of the clock after a random commit, few enough that the store is not full;
        # the last ones are killed anywhere in what is left, the grading included.
        moment, goal = duration * rng.random(), math.inf
        if i < 0.8 * kills:
            goal = 1 if i % 4 == 0 else 1 + int(40 * N / kills * 0.5 * rng.random())
            moment = moment if goal == 1 else math.inf
        size = os.fstat(record).st_size
        child = partial(run, task, store, acknowledged=record, killed=(moment, goal))
        codes += wait_for([fork(child)])
        sizes.append(os.fstat(record).st_size - size)
    resumed = wait_for([fork(lambda: run(task, store, folder / "killed.json", record))])
    again = wait_for([fork(lambda: run(task, store, folder / "again.json"))])
    print(json.dumps({"codes": codes, "sizes": sizes, "ends": [*resumed, *again]}))


def together(folder, runs):
    """Runs that begin at one moment on one store, which does not exist yet."""
    folder, task = Path(folder), load_task()
    store = folder / "shared.sqlite"
    run_together(int(runs), lambda number: run(task, store, folder / f"{number}.json"))


if __name__ == "__main__":
    {"killed": killed, "together": together}[sys.argv[1]](*sys.argv[2:])
