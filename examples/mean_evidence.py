"""Another benchmark as prior of the common mean: how often intervals hold the truth.

A model answers 30 questions in 4 trials each, and has answered 100 questions of another benchmark
as often. Success probabilities are Beta(4m, 4(1 − m)), and for rubrics with the scores 0, ½, 1
Dirichlet(4q) with q the shares of Binomial(2, m); the other benchmark has a mean m' of its own.
Compared are hbayes@N alone, with the other benchmark's weight learned ("auto"), and with the full
weight of all its trials (λ = 1).

    python examples/mean_evidence.py                # few runs, in seconds
    python examples/mean_evidence.py --runs 300     # the table of the docs
"""

import argparse

import numpy as np
from scipy import stats

import lm_eval_bayes as leb

N_QUESTIONS, N_OTHER, N_TRIALS, STRENGTH = 30, 100, 4, 4.0
#: m, m' and the number of categories less one.
CASES = (
    (0.5, 0.5, 1),
    (0.9, 0.9, 1),
    (0.05, 0.05, 1),
    (0.5, 0.6, 1),
    (0.5, 0.7, 1),
    (0.5, 0.9, 1),
    (0.9, 0.8, 1),
    (0.9, 0.3, 1),
    (0.6, 0.6, 2),
    (0.6, 0.2, 2),
)


def simulate(mean, n_questions, categories, rng):
    """Return simulated outcomes, and the questions' mean score."""
    shares = stats.binom.pmf(np.arange(categories + 1), categories, mean)
    p = rng.dirichlet(STRENGTH * shares, n_questions)
    counts = np.array([rng.multinomial(N_TRIALS, row) for row in p])
    truth = float((p @ np.linspace(0, 1, categories + 1)).mean())
    return leb.Outcomes.from_counts(counts), truth


def study(mean, other_mean, categories, runs, seed):
    """Return coverage and mean width by (prior, scope), and the share of runs it is left out in."""
    rng = np.random.default_rng([seed, int(100 * mean), int(100 * other_mean), categories])
    rows, left_out = {}, []
    for _ in range(runs):
        outcomes, of_questions = simulate(mean, N_QUESTIONS, categories, rng)
        other, _ = simulate(other_mean, N_OTHER, categories, rng)
        learned = leb.mean_evidence(outcomes, other, "auto", scope="population")
        full = learned.pseudo_trials
        posteriors = {
            "alone": learned.without,
            "auto": learned.posterior,
            "1": leb.hbayes_at_n(outcomes, "population", mean_counts=full),
        }
        left_out.append(learned.left_out)
        for name, population in posteriors.items():
            pairs = ((population.benchmark, of_questions), (population, mean))
            for posterior, truth in pairs:
                interval = posterior.interval()
                covered = interval.low <= truth <= interval.high
                rows.setdefault((name, posterior.scope), []).append((covered, interval.width))
    return {key: np.mean(values, axis=0) for key, values in rows.items()}, np.mean(left_out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=2, help="simulated runs of a line")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    error = 100 * np.sqrt(0.95 * 0.05 / args.runs)
    print(f"coverage of 95% intervals, benchmark / population, {args.runs} runs (± {error:.1f});")
    print("in brackets their width in units of that without the other benchmark\n")
    print("| m | m' | categories | alone | auto | left out | λ = 1 |")
    print("|---|---|---|---|---|---|---|")
    for mean, other_mean, categories in CASES:
        rows, left_out = study(mean, other_mean, categories, args.runs, args.seed)
        cells = []
        for name in ("alone", "auto", "1"):
            both = [rows[name, scope] for scope in ("benchmark", "population")]
            ratios = [
                width / rows["alone", scope][1]
                for (_, width), scope in zip(both, ("benchmark", "population"), strict=True)
            ]
            covered = " / ".join(f"{100 * value:.1f}" for value, _ in both)
            widths = "" if name == "alone" else f" ({ratios[0]:.2f}, {ratios[1]:.2f})"
            cells.append(f"{covered}{widths}")
        alone, auto, full = cells
        print(
            f"| {mean:g} | {other_mean:g} | {categories + 1} | {alone} | {auto} "
            f"| {100 * left_out:.0f}% | {full} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
