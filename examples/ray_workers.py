"""How close many workers come to their share of the time: `executor=ray` beside the ideal.

The model is the biased coin, whose trials take log-normal times that depend on question and trial
(`seconds=`), so that many workers need few cores. From the store, which has the time of every
trial, the script computes how long the run took from the moment at which all workers were sampling,
and how long the same trials would have taken without a gap. It also compares the trials with those
of one process. Starting Ray and the workers is not counted.

    python examples/ray_workers.py                                  # 8 workers, 800 trials
    python examples/ray_workers.py --workers 3 --trials 4 --seconds 0.3
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TASK = "demo_arithmetic_bayes"


def sample(store, trials, *arguments):
    """Run the harness on a store."""
    model_args = ",".join(("backend=biased_coin,beta=2:3", f"store={store}", *arguments))
    subprocess.run(
        [
            *(sys.executable, "-m", "lm_eval_bayes", "run", "--model", "trials"),
            *("--model_args", model_args, "--tasks", TASK),
            *("--metadata", json.dumps({"bayes_n": trials})),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def read(store):
    """Return the trials of a store, in the order of prompts and numbers."""
    exported = store.with_suffix(".jsonl")
    subprocess.run(
        [*(sys.executable, "-m", "lm_eval_bayes", "store", "export"), store, "-o", exported],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    lines = exported.read_text(encoding="utf-8").splitlines()
    trials = [record for record in map(json.loads, lines) if record["kind"] == "trial"]
    return sorted(trials, key=lambda trial: (trial["prompt"], trial["trial"]))


def ratio_to_ideal(trials, workers):
    """Return the seconds from when all workers sample to the end, and the ideal ones.

    Parameters
    ----------
    trials : list of dict
        Exported trials.
    workers : int
        The number of workers, each of which samples one trial at a time.
    """
    spans = [(trial["created"] - trial["generated_s"], trial["created"]) for trial in trials]
    running, most, begin = 0, 0, None
    for moment, change in sorted([(a, 1) for a, _ in spans] + [(b, -1) for _, b in spans]):
        running += change
        most = max(most, running)
        if running == workers and begin is None:
            begin = moment
    if begin is None:
        raise SystemExit(
            f"at most {most} of {workers} workers were sampling: more trials are needed"
        )
    took = max(end for _, end in spans) - begin
    work = sum(max(0.0, end - max(start, begin)) for start, end in spans)
    return took, work / workers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--trials", type=int, default=20, help="of each of the 40 questions")
    parser.add_argument("--seconds", type=float, default=0.5, help="the mean time of a trial")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone, many = Path(folder, "alone.sqlite"), Path(folder, "ray.sqlite")
        sample(alone, args.trials)
        sample(many, args.trials, f"executor=ray,workers={args.workers},seconds={args.seconds}")
        by_one, by_many = read(alone), read(many)
    key = ("model", "prompt", "sampling", "trial", "seed", "text")
    same = [[trial[name] for name in key] for trial in by_one] == [
        [trial[name] for name in key] for trial in by_many
    ]
    took, ideal = ratio_to_ideal(by_many, args.workers)
    print(f"{len(by_many)} trials of {args.seconds:g} s on average, {args.workers} workers")
    print(f"keys, seeds and texts are those of one process: {'yes' if same else 'no'}")
    print(f"from when all workers sample to the end: {took:.1f} s, {took / ideal:.3f} x the ideal")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
