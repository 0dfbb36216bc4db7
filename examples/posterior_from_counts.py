"""From counts of right answers to posteriors: 30 questions of AIME 2024, 128 trials each.

First all trials of two real models, then 8 of them, drawn without replacement: what would have been
known? No run of the harness is needed, and questions may have unequal numbers of trials.

    python examples/posterior_from_counts.py
"""

import csv
from pathlib import Path

import numpy as np

import lm_eval_bayes as leb

COUNTS = Path(__file__).with_name("counts128_aime24_amc23.csv")
MODELS = {"c_base": "R1-Distill-Qwen-1.5B", "c_rl": "DeepScaleR-1.5B"}


def read():
    """Return the right answers of each model to each question."""
    with COUNTS.open() as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    aime = [row for row in rows if row["source"] == "aime24"]
    return {name: np.array([int(row[column]) for row in aime]) for column, name in MODELS.items()}


def show(right, n):
    models = {}
    for name, counts in right.items():
        models[name] = outcomes = leb.Outcomes.from_counts(np.stack([n - counts, counts], axis=1))
        here, others = (leb.hbayes_at_n(outcomes, scope) for scope in ("benchmark", "population"))
        texts = [f"{name:20} {n:3d}  {leb.avg_at_n(outcomes).value:.3f}  {here.mu:.3f}"]
        for posterior in (here, others, leb.pass_at_k_posterior(outcomes, 8)):
            interval = posterior.interval(0.95)
            texts.append(f"{interval.low:.3f}–{interval.high:.3f}")
        print("  ".join([*texts, f"{leb.pass_at_k(outcomes, 8).value:.3f}"]))
    second, first = models.values()
    interval = leb.compare(first, second).interval
    print(f"{'difference':20} {n:3d}  {interval.low:.3f} to {interval.high:.3f}\n")


def main():
    right = read()
    print(f"{'':20}   N  avg@N  hbayes  these 95%    others 95%   hpass@8 95%  pass@8")
    show(right, 128)
    rng = np.random.default_rng(0)
    show({name: rng.hypergeometric(c, 128 - c, 8) for name, c in right.items()}, 8)


if __name__ == "__main__":
    main()
