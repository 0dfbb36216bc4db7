"""Timings beside a plain loop over scipy: pytest -m benchmarks (this file)

The loop ranks every prefix of every replicate with scipy.stats.rankdata and compares it with
the last one by scipy.stats.kendalltau. It is timed on a few replicates; the ratio is per
replicate, in the benchmark's extra_info.
"""

from __future__ import annotations

import resource
import time

import numpy as np
import pytest
from scipy import special, stats

from lm_eval_bayes.stats.convergence.convergence import convergence_at_n
from lm_eval_bayes.stats.convergence.prefix_scores import draw_blocks
from lm_eval_bayes.stats.simulation import beta_mimics, simulate_outcomes

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
pytestmark = pytest.mark.benchmarks

REPLICATES = 100_000
LOOPED = 10
SHAPE = (11, 30, 80)
MEANS = np.linspace(0.2, 0.75, SHAPE[0])
R = simulate_outcomes(beta_mimics(2 * MEANS, 2 * (1 - MEANS), SHAPE[1]), SHAPE[2])


def mean_score(drawn):
    return drawn.mean(axis=(1, 2))


def pass_at_8(drawn):
    n = drawn.shape[2]
    c = drawn.sum(axis=2)
    return np.round((1 - special.binom(n - c, 8) / special.binom(n, 8)).mean(axis=1), 12)


CASES = {
    "bayes": ("bayes", {}, mean_score, 30.0),
    "bayes row": ("bayes", {"scheme": "row"}, mean_score, 120.0),
    "bayes ties": ("bayes", {"ties": "adjacent"}, None, 120.0),
    "pass@8": ("pass@k", {"k": 8}, pass_at_8, 120.0),
    "pass@8 row": ("pass@k", {"k": 8, "scheme": "row"}, pass_at_8, 120.0),
}


def loop(score, k, scheme):
    """Return convergence@n of a few replicates, the plain way."""
    questions = np.arange(SHAPE[1])
    when = []
    for block in draw_blocks(scheme, SHAPE, LOOPED, 0):
        for columns in block:
            rows = (
                (slice(None), columns[0]) if scheme == "column" else (questions[:, None], columns)
            )
            drawn = R[(slice(None), *rows)]
            ranks = [stats.rankdata(-score(drawn[:, :, :n])) for n in range(k, SHAPE[2] + 1)]
            taus = [stats.kendalltau(one, ranks[-1]).statistic for one in ranks]
            differs = [
                n for n, tau in zip(range(k, SHAPE[2] + 1), taus, strict=True) if tau < 1 - 1e-9
            ]
            when.append(max(differs, default=k - 1) + 1)
    return when


@pytest.mark.parametrize("name", CASES)
def test_a_hundred_thousand_replicates(benchmark, name):
    metric, arguments, score, limit = CASES[name]
    benchmark.group = "convergence@n, L = 11, M = 30, N = 80, 100,000 replicates"
    result = benchmark.pedantic(
        convergence_at_n, (R, metric), {**arguments, "replicates": REPLICATES}, rounds=1
    )
    taken = benchmark.stats.stats.min
    assert result.replicates == REPLICATES
    assert taken < limit
    # of the whole process, in KiB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 * 2**20
    if score is None:
        return
    k, scheme = arguments.get("k", 1), arguments.get("scheme", "column")
    start = time.perf_counter()
    when = loop(score, k, scheme)
    looped = (time.perf_counter() - start) / LOOPED
    few = convergence_at_n(R, metric, **arguments, replicates=LOOPED)
    assert few.counts.tolist() == [when.count(s) for s in range(1, SHAPE[2])]
    benchmark.extra_info["times as fast as a loop over scipy"] = looped * REPLICATES / taken
    print(f"\n{name}: {taken:.1f} s; {looped * REPLICATES / taken:.0f} times as fast as a loop")
    assert looped * REPLICATES > 20 * taken
