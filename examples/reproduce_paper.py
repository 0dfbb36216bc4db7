"""The simulations of [Hariri 2026], arXiv 2510.04265, with the paper's numbers beside ours.

    python reproduce_paper.py                                        # numbers only, seconds
    python reproduce_paper.py --replicates 100000 --out figures      # a few minutes, with figures

Of Figure 1's eleven success rates four are known to us (.3642 twice, a true tie, and .6080 and
.6213, too close for N = 80); the other seven, and how questions spread about them, are our own.
So is how Figure 2 updates its models, see `prior_study`. Ours therefore shows what the paper
shows and not its very digits.

Figures need matplotlib: pip install "lm-eval-bayes[plots]".
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from lm_eval_bayes import (
    Convergence,
    KendallCurve,
    Outcomes,
    PriorStudy,
    bayes_at_n,
    convergence_at_n,
    expected_z,
    kendall_curve,
    kendall_tau_b,
    mimics_with_means,
    prior_study,
    rank,
    simulate_outcomes,
    trials_until_z,
)

MEANS = (0.15, 0.20, 0.25, 0.31, 0.3642, 0.3642, 0.43, 0.52, 0.6080, 0.6213, 0.70)
QUESTIONS, TRIALS = 30, 80
METRICS = {
    "bayes": {},
    "pass@2": {"metric": "pass@k", "k": 2},
    "pass@4": {"metric": "pass@k", "k": 4},
    "pass@8": {"metric": "pass@k", "k": 8},
    "pass^4": {"metric": "pass^k", "k": 4},
    "g-pass@4 (.5)": {"metric": "g-pass", "k": 4, "tau": 0.5},
    "mg-pass@4": {"metric": "mg-pass", "k": 4},
}
STOPS = (1, 2, 5, 10, 20, 40, 80)


def figure_1(R: np.ndarray, replicates: int, seed: int) -> dict[str, KendallCurve]:
    print("Figure 1: Kendall's tau_b with the true ranking of eleven mimics, mean over replicates")
    print(f"{'':15}" + "".join(f"{f'N = {n}':>9}" for n in STOPS))
    curves = {
        name: kendall_curve(R, MEANS, **arguments, replicates=replicates, seed=seed)
        for name, arguments in METRICS.items()
    }
    for name, curve in curves.items():
        taus = (curve.mean[n - 1] for n in STOPS)
        print(f"{name:15}" + "".join("        -" if np.isnan(t) else f"{t:9.3f}" for t in taus))
    row = kendall_curve(R, MEANS, scheme="row", replicates=replicates, seed=seed)
    apart = np.abs(row.mean - curves["bayes"].mean).max()
    print("paper: Bayes@N starts highest and arrives first; .90 by N = 10 on real benchmarks")
    print(f"rows resampled one by one instead of whole columns: at most {apart:.3f} away")
    print("paper: nearly identical\n")
    return curves


def convergence(R: np.ndarray, replicates: int, seed: int) -> dict[str, Convergence]:
    print("Convergence@n of the same mimics [Section 3.3]")
    results = {
        name: convergence_at_n(R, **METRICS[name], replicates=replicates, seed=seed)
        for name in ("bayes", "pass@2", "pass@4", "pass@8")
    }
    tied = convergence_at_n(R, ties="adjacent", replicates=replicates, seed=seed)
    for name, result in {**results, "bayes, 95% ties": tied}.items():
        mean = "never" if result.mean is None else f"{result.mean:.1f}"
        print(f"{name:15} mean {mean:>5}, not converged {result.not_converged:6.1%}", end="")
        print("" if result.worst is None else f", latest at {result.worst.converged_at}")
    print("paper, real models: Bayes@N 44.2 on HMMT'25 and 27.1 on BrUMO'25; Pass@k 69.5 and 48.5")
    print()
    return results


def figure_2(replicates: int, seed: int) -> PriorStudy:
    study = prior_study(replicates=replicates, seed=seed)
    print("Figure 2: eight models Beta(i + 3, 12 - i), ranked with D trials of their old versions")
    print(f"tau_b of the old and the new ranking {study.tau_update:.3f}; paper: about .88")
    print(f"share of rankings that changed {study.changed:.3f}; paper: about .86")
    print(f"{'':15}" + "".join(f"{f'N = {n}':>9}" for n in study.n_trials))
    for d, taus in zip(study.n_prior, study.tau, strict=True):
        print(f"{f'D = {d}':15}" + "".join(f"{tau:9.3f}" for tau in taus))
    print("paper: a small D helps while N is small; D = 8 and 16 hurt once N is larger\n")
    return study


def figure_3(p: np.ndarray) -> None:
    first, second = (p[MEANS.index(mean)] for mean in (0.6080, 0.6213))
    print("Figure 3: how many trials tell .6080 from .6213?")
    for z, confidence in ((1.645, ".95"), (1.96, ".975")):
        n = trials_until_z(first, second, z)
        print(f"z = {z:5} (one-sided {confidence:4}) at N = {n}, {n / TRIALS:.1f} times 80")
    print(f"at N = 80 only z = {float(expected_z(first, second, TRIALS)):.2f}")
    print("paper: not distinguishable at N = 80; about three times as many trials are needed\n")


def table_1(R: np.ndarray, p: np.ndarray, replicates: int, seed: int) -> None:
    posteriors = {
        f"LLM{i}": bayes_at_n(Outcomes.from_matrix(model_outcomes))
        for i, model_outcomes in enumerate(R, start=1)
    }
    plain = rank(posteriors, ties="none")
    tied = rank(posteriors, ties="adjacent")
    truth = dict(zip(posteriors, MEANS, strict=True))
    print("Table 1: Bayes@80, ranked without and with 95% ties (z = 1.645)")
    print("model     true   mean     sd  rank  with ties")
    for name, mu, sigma in zip(plain.models, plain.mu, plain.sigma, strict=True):
        ranks = f"{plain.rank_of(name):4.0f} {tied.rank_of(name):10.0f}"
        print(f"{name:6} {truth[name]:7.4f} {mu:6.4f} {sigma:.4f}  {ranks}")
    scores = [posteriors[name].mu for name in posteriors]
    print(f"tau_b with the true ranking {float(kendall_tau_b(scores, MEANS)):.3f}")
    print("paper: right but for two neighbours and the true tie; with ties, close ones share")
    # One run is luck, so count what this pair does over many of them.
    c = np.random.default_rng(seed).binomial(TRIALS, p[8:10], (replicates, 2, QUESTIONS))
    v = (c + 1) * (TRIALS - c + 1) / ((TRIALS + 2) ** 2 * (TRIALS + 3))
    gap = np.diff((c + 1).mean(axis=2) / (TRIALS + 2), axis=1)[:, 0]
    near = np.abs(gap) < 1.645 * np.sqrt(v.sum(axis=(1, 2))) / QUESTIONS
    print(f"over {replicates} new runs LLM9 and LLM10 tie in {near.mean():.0%}", end=", ")
    print(f"and without ties they swap places in {(gap < 0).mean():.0%}\n")


def draw(
    out: Path,
    curves: dict[str, KendallCurve],
    results: dict[str, Convergence],
    study: PriorStudy,
    p: np.ndarray,
) -> None:
    try:
        import matplotlib
    except ImportError:
        print('No figures: matplotlib is not installed (pip install "lm-eval-bayes[plots]").')
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12, 9), layout="constrained")
    trials = np.arange(1, TRIALS + 1)
    for name, curve in curves.items():
        axes[0, 0].plot(trials, curve.mean, label=name)
    axes[0, 0].set(xlabel="N", ylabel="Kendall's τ_b with the truth", title="Figure 1")
    for name, result in results.items():
        label = f"{name}, {result.not_converged:.0%} not converged"
        axes[0, 1].plot(trials[:-1], result.pmf, label=label)
    axes[0, 1].set(xlabel="s", ylabel="share of replicates", title="Convergence@n")
    for d, taus in zip(study.n_prior, study.tau, strict=True):
        axes[1, 0].plot(study.n_trials, taus, marker="o", label=f"D = {d}")
    axes[1, 0].set(xlabel="N", ylabel="Kendall's τ_b with the truth", title="Figure 2")
    axes[1, 0].set_xscale("log", base=2)
    first, second = (p[MEANS.index(mean)] for mean in (0.6080, 0.6213))
    many = np.arange(1, 401)
    axes[1, 1].plot(many, expected_z(first, second, many), label=".6080 and .6213")
    for z in (1.645, 1.96):
        axes[1, 1].axhline(z, linestyle=":", color="grey")
    axes[1, 1].set(xlabel="N", ylabel="expected z", title="Figure 3")
    for axis in axes.flat:
        axis.legend(fontsize="small")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "reproduce_paper.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Figures in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=1000, help="of every bootstrap")
    parser.add_argument("--out", type=Path, help="folder for the figures; none are drawn without")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    p = mimics_with_means(MEANS, QUESTIONS)
    R = simulate_outcomes(p, TRIALS, seed=options.seed)
    curves = figure_1(R, options.replicates, options.seed)
    result = convergence(R, options.replicates, options.seed)
    study = figure_2(options.replicates, options.seed)
    figure_3(p)
    table_1(R, p, options.replicates, options.seed)
    if options.out is None:
        print("No figures: give --out DIR to have them drawn.")
    else:
        draw(options.out, curves, result, study, p)


if __name__ == "__main__":
    main()
