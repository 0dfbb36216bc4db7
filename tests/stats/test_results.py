"""What every result has: a seed that decides, numbers that JSON knows, arrays that stay."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lm_eval_bayes as leb

A = leb.Outcomes.from_counts([[3, 5], [6, 2], [4, 4]])
B = leb.Outcomes.from_counts([[5, 3], [6, 2], [7, 1]])
RUBRIC = leb.Outcomes.from_counts([[3, 4, 1], [6, 1, 1], [4, 2, 2]])
ONCE = leb.Outcomes.from_matrix([[1], [0], [1]])
ANCHORS = leb.AnchorMatrix.from_probabilities([[0.1, 0.2, 0.3], [0.5, 0.6, 0.7]])
TENSOR = np.random.default_rng(0).integers(0, 2, (3, 4, 9))
RUBRICS = {"a": leb.bayes_at_n(RUBRIC), "b": leb.bayes_at_n(RUBRIC.take([0, 2, 1]))}
MARKS = [[True, False, False, True]] * 3
CELLS = np.array([5, 3, 2, 4])
N = np.int64(100)

#: With numbers as numpy has them.
DRAWN = {
    "hbayes": lambda seed: leb.hbayes_at_n(RUBRIC, level=np.float32(0.9), seed=seed),
    "rank": lambda seed: leb.rank(RUBRICS, confidence=np.float32(0.9), seed=seed, draws=10 * N),
    "compare": lambda seed: leb.compare(
        RUBRIC, RUBRIC.take([0, 2, 1]), rope=np.float32(0.1), seed=seed
    ),
    "curves": lambda seed: leb.compare_pass_curves(A, B, np.array([1, 2]), seed=seed, draws=N),
    "paired": lambda seed: leb.compare_paired(ONCE, ONCE, seed=seed, draws=10 * N),
    "maj posterior": lambda seed: leb.maj_at_k_posterior(
        [["7", "8", "9", "7"]] * 3, MARKS, np.int64(3), seed=seed
    ),
    "confusion": lambda seed: leb.confusion_posterior(CELLS, draws=10 * N, seed=seed),
    "bootstrap": lambda seed: leb.bootstrap_interval(np.linspace(0, 1, 9), replicates=N, seed=seed),
    "convergence": lambda seed: leb.convergence_at_n(
        TENSOR, "g-pass", k=np.int64(2), tau=np.float32(0.5), replicates=N, seed=seed
    ),
    "curve": lambda seed: leb.kendall_curve(
        TENSOR, np.array([1, 2, 3]), "pass@k", k=np.int64(2), replicates=N, seed=seed
    ),
    "capability": lambda seed: leb.capability_intervals(
        ANCHORS, A, scope="population", replicates=N, seed=seed
    ),
    "independence": lambda seed: leb.query_independence(TENSOR, permutations=N, seed=seed),
}


def without_seed(result):
    return {key: value for key, value in result.to_dict().items() if key != "seed"}


@pytest.mark.parametrize("name", DRAWN)
def test_the_seed_decides_and_json_holds_the_result(name):
    first, again, other = (DRAWN[name](np.int64(seed)) for seed in (4, 4, 5))
    plain = first.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain == again.to_dict()
    assert without_seed(first) != without_seed(other)


POSTERIORS = {
    "bayes": leb.bayes_at_n(A),
    "hbayes, rubric, population": leb.hbayes_at_n(RUBRIC, "population", 0.9),
    "compare": leb.compare(A, B, "population").posterior,
    "pass@k": leb.pass_at_k_posterior(A, 3),
    "clustered": leb.clustered_posterior(A),
}


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_posterior_brings_its_interval_into_json(name):
    posterior = POSTERIORS[name]
    plain = json.loads(json.dumps(posterior.to_dict(), allow_nan=False))
    assert plain == posterior.to_dict()
    assert plain["interval"] == posterior.interval().to_dict()
    assert plain["interval"]["level"] == posterior.level
    assert plain["interval"]["low"] < posterior.mu < plain["interval"]["high"]
    chosen = posterior.interval(0.5, "normal")
    assert posterior.to_dict(chosen)["interval"] == chosen.to_dict()


@pytest.mark.parametrize("name", POSTERIORS)
def test_nobody_can_write_into_a_posterior(name):
    posterior = POSTERIORS[name]
    learned = [] if posterior.learned is None else [posterior.learned.mean]
    for array in (posterior.per_question.mu, posterior.per_question.sigma, *learned):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
