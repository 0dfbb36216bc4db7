"""The independent check stands on its own feet: published values, brute force, scipy."""

from __future__ import annotations

import random
import sys
from collections import Counter
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats


@pytest.fixture
def recompute(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parent))
    for name in ("recompute", "independent_interval"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import recompute as module

    return module


def test_it_knows_nothing_of_the_package() -> None:
    for name in ("recompute.py", "independent_interval.py"):
        source = (Path(__file__).resolve().parent / name).read_text(encoding="utf-8")
        imports = [x for x in source.splitlines() if x.startswith(("import ", "from "))]
        modules = {line.split()[1].split(".")[0] for line in imports}
        assert modules <= set(sys.stdlib_module_names) | {"independent_interval"}


def test_published_posterior(recompute: ModuleType) -> None:
    rows = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
    questions = [recompute.Question(row, [None] * 5, 0) for row in rows]
    mu, sigma = recompute.Bank(questions, {"weights": [0, 0.5, 1]}).posterior()
    assert (round(mu, 6), round(sigma, 6)) == (0.5625, 0.091998)  # [Hariri 2026]


def test_majority_against_every_subset(recompute: ModuleType) -> None:
    rng = random.Random(3)
    for _ in range(300):
        n = rng.randint(1, 8)
        k = rng.randint(1, n)
        outcomes = [rng.randrange(2) for _ in range(n)]
        answers = [rng.choice(["a", "b", "c", None]) for _ in range(n)]
        credits = []
        for subset in combinations(range(n), k):
            votes = Counter(
                "right" if outcomes[i] else answers[i]
                for i in subset
                if outcomes[i] or answers[i] is not None
            )
            top = max(votes.values(), default=0)
            first = [a for a, v in votes.items() if v == top]
            credits.append(Fraction("right" in first, max(1, len(first))))
        expected = sum(credits) / len(credits)
        assert recompute.majority_credit(outcomes, answers, k) == expected


@pytest.mark.parametrize(("right", "wrong"), [(0, 4), (3, 13), (80, 0), (311, 689)])
def test_one_question_is_a_beta(recompute: ModuleType, right: int, wrong: int) -> None:
    own = recompute.interval.exact([(right, wrong)], 0.95)
    assert own == pytest.approx(stats.beta.ppf([0.025, 0.975], 1 + right, 1 + wrong), abs=1e-10)
    a, b = 0.3 + right, 0.7 + wrong
    for x in (0.01, 0.4, 0.93):
        expected = stats.beta.cdf(x, a, b)
        assert recompute.interval.incomplete_beta(a, b, x) == pytest.approx(expected, abs=1e-12)


def test_two_questions_two_ways(recompute: ModuleType) -> None:
    shapes = [(3, 5), (2, 9)]
    quadrature = recompute.interval.mean_distribution([(a - 1, b - 1) for a, b in shapes])
    fourier = recompute.interval._distribution_by_fourier(shapes)
    for x in np.linspace(0.02, 0.98, 25):
        assert quadrature(x) == pytest.approx(fourier(x), abs=1e-8)


def test_many_questions_against_draws(recompute: ModuleType) -> None:
    counts = [(right, 16 - right) for right in (0, 0, 1, 1, 2, 4, 9, 15, 16, 16)]
    rng = np.random.default_rng(5)
    draws = np.mean([rng.beta(1 + r, 1 + w, 400_000) for r, w in counts], axis=0)
    own = recompute.interval.exact(counts, 0.95)
    # the Monte-Carlo error of such a quantile is about 7e-5
    assert own == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=4e-4)
    shortest = recompute.interval.shortest(counts, 0.95)
    assert shortest[1] - shortest[0] <= own[1] - own[0]
