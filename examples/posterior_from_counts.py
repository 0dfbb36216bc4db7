"""From counts of right answers to a posterior, with and without the harness.

Two models answered the same five questions, some of them more often than others.
"""

from __future__ import annotations

from lm_eval_bayes import Outcomes, avg_at_n, bayes_at_n, pass_at_k, pass_at_k_posterior

WRONG_AND_RIGHT = {
    "model A": [[2, 14], [10, 6], [16, 0], [1, 15], [0, 16]],
    "model B": [[3, 5], [7, 1], [8, 0], [2, 6], [0, 8]],
}


def main() -> None:
    for name, counts in WRONG_AND_RIGHT.items():
        outcomes = Outcomes.from_counts(counts)
        posterior = bayes_at_n(outcomes)
        interval = posterior.interval(level=0.95, method="exact")
        print(f"{name}: {posterior.mu:.3f} ± {posterior.sigma:.3f}", end="  ")
        print(f"95% in [{interval.low:.3f}, {interval.high:.3f}]", end="  ")
        print(f"avg@N {avg_at_n(outcomes).value:.3f}", end="  ")
        # The estimator needs k <= N; the posterior of the same quantity takes any k.
        print(f"pass@4 {pass_at_k(outcomes, 4).value:.3f}", end="  ")
        print(f"posterior of pass@32 {pass_at_k_posterior(outcomes, 32).mu:.3f}")


if __name__ == "__main__":
    main()
