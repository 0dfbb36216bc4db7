"""How long a trial store takes, and how much memory, by its number of trials.

Stores of 80 graded trials per question are filled, each trial with a text of 600 characters. Every
operation runs in a process of its own. Shown are the seconds, of them those of the processor, and
the process's peak memory, Python and its libraries included. "Linear" is the largest of the ratios
of the processor's time per trial between a size and the next smaller one: 1 if the time is
proportional to the number of trials, and less where a fixed part dominates.

    python examples/store_sizes.py                             # 1,000 and 10,000 trials
    python examples/store_sizes.py --trials 10000 100000 1000000   # a quarter of an hour, 3 GB
"""

import argparse
import itertools
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lm_eval_bayes.store.export import export_jsonl
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.samples_export import export_samples
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

#: Trials per question, and characters of a text.
EACH, CHARACTERS = 80, 600

SENTENCE = "so we have then the sum of all x is two and three hence it follows that 4 x = 12 or"


def fill(path, trials):
    """Store trials of trials / 80 questions, with their grades."""
    pool = " ".join(random.Random(1).choices(SENTENCE.split(), k=200_000))
    with TrialStore.open(path) as store:
        model = store.describe_model({"pretrained": "some/model"})
        sampling = store.describe_sampling({"temperature": 0.6})
        texts = [f"Question {q}: " + "what? " * 20 for q in range(trials // EACH)]
        for q, prompt in enumerate(store.describe_prompts(texts)):
            key = TrialKey(model=model, prompt=prompt, sampling=sampling)
            starts = [(q * EACH + i) * 7919 % (len(pool) - CHARACTERS) for i in range(EACH)]
            store.add(
                Trial(key, i, pool[start : start + CHARACTERS], seed=i, completion_tokens=150)
                for i, start in enumerate(starts)
            )
            graded = tuple(GradedTrial(key, i, i % 2, "42") for i in range(EACH))
            question = GradedQuestion(q, f"{q:064x}", graded)
            store.add_outcomes([GradedTask("aime", "1.0", "none", 2, (question,))])


def look_up(path, _):
    """Ask which trials of every question are stored, as a run does at its start."""
    with TrialStore.open(path, mode="read") as store:
        with store.file.reading() as connection:
            pair = connection.execute("SELECT m.hash, s.hash FROM models m, samplings s")
            model, sampling = pair.fetchone()
            prompts = connection.execute("SELECT hash FROM prompts ORDER BY id").fetchall()
        keys = [TrialKey(model, prompt, sampling) for (prompt,) in prompts]
        return sum(map(len, store.numbers_of(keys).values()))


def info(path, _):
    """Count the contents."""
    with TrialStore.open(path, mode="read") as store:
        return store.info().trials


OPERATIONS = {
    "look up": look_up,
    "info": info,
    "verify": lambda path, _: verify(path).records["trials"],
    "merge": lambda path, folder: merge([path], folder / "merged.sqlite").added,
    "export": lambda path, folder: export_jsonl(path, folder / "trials.jsonl").trials,
    "export samples": lambda path, folder: export_samples(path, folder / "s").files[0].trials,
}


def work(operation, path, folder):
    """Do one operation in this process, and print what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    trials = OPERATIONS[operation](path, folder)
    measured = {
        "trials": trials,
        "seconds": time.perf_counter() - wall,
        "processor": time.process_time() - processor,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(measured))


def measure(operation, path):
    """Do one operation in a process of its own; return its trials, seconds and megabytes."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        command = [sys.executable, __file__, "--work", operation, str(path), folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def superlinear(measured):
    """Return the largest ratio of the time per trial between a size and the next smaller one.

    Parameters
    ----------
    measured : mapping of int to mapping
        What :func:`measure` returned, by the number of trials.
    """
    sizes = sorted(measured)
    each = [measured[size]["processor"] / size for size in sizes]
    return max(large / small for small, large in itertools.pairwise(each))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--work", nargs=3, metavar=("OPERATION", "STORE", "FOLDER"))
    arguments = parser.parse_args()
    if arguments.work:
        operation, path, folder = arguments.work
        work(operation, Path(path), Path(folder))
        return
    sizes = sorted(arguments.trials)
    if sizes[0] < EACH:
        parser.error(f"--trials must be at least {EACH}; got {sizes[0]}")
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.sqlite"
            fill(path, size)
            print(f"{size:,} trials: {path.stat().st_size / 1e6:,.0f} MB")
            for operation in OPERATIONS:
                table.setdefault(operation, {})[size] = measure(operation, path)
    print("\n| operation | " + " | ".join(f"{size:,} trials" for size in sizes) + " | linear |")
    print("|---" * (len(sizes) + 2) + "|")
    for operation, measured in table.items():
        cells = [
            "{seconds:.2f} s ({processor:.2f} s), {megabytes:.0f} MB".format(**measured[size])
            for size in sizes
        ]
        ratio = f"{superlinear(measured):.2f}" if len(sizes) > 1 else ""
        print(f"| {operation} | " + " | ".join(cells) + f" | {ratio} |")


if __name__ == "__main__":
    main()
