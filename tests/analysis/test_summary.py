"""The numbers of one run, against formulas, subsets one by one, and quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
from _support import by_hand
from _support.errors import refused
from scipy import integrate, stats

from lm_eval_bayes import mean_over_tasks
from lm_eval_bayes.analysis.summary import summarise, summarise_groups
from lm_eval_bayes.runs.task_run import Provenance, TaskRun
from lm_eval_bayes.stats.intervals import IntervalSpec

#: Right or wrong, 6 trials of 5 questions, and what each of them answered.
MATRIX = [[1, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0], [1] * 6, [0, 0, 1, 0, 0, 0]]
ANSWERS = [
    ("4", "4.0", "5", "4", "4", "4"),
    ("1", "2", "1", "1", None, "3"),
    ("7", "8", "7", None, "8", "9"),
    ("3",) * 6,
    (None, None, "6", "5", "5", "5"),
]
SCOPES = ("benchmark", "population")


def run_of(matrix=MATRIX, model="A", task="aime", ids=None, **more):
    names = [f"q{i}" for i in range(len(matrix))] if ids is None else ids
    return TaskRun.from_trials(model, task, matrix, names, **more)


def test_the_pass_family_counts_subsets():
    answers = tuple(ANSWERS)
    rows = summarise(run_of(answers=answers), ks=[1, 2, 3, 5]).rows
    expected = {f"pass@{k}": [by_hand.g_pass_at_k(row, k) for row in MATRIX] for k in (1, 2, 3, 5)}
    for k in (2, 3, 5):
        expected[f"pass^{k}"] = [by_hand.g_pass_at_k(row, k, k) for row in MATRIX]
        half = math.ceil(k / 2)
        expected[f"g-pass@{k}_0.5"] = [by_hand.g_pass_at_k(row, k, half) for row in MATRIX]
        above = range(half + 1, k + 1)
        expected[f"mg-pass@{k}"] = [
            2 / k * sum(by_hand.g_pass_at_k(row, k, i) for i in above) for row in MATRIX
        ]
    expected["maj@6"] = [
        by_hand.maj_at_k(row, given, 6) for row, given in zip(MATRIX, ANSWERS, strict=True)
    ]
    families = list(dict.fromkeys(name.rstrip("0123456789") for name in rows if "g-" not in name))
    assert families == ["pass@", "pass^", "maj@"]
    assert dict(rows) == pytest.approx({k: float(np.mean(v)) for k, v in expected.items()})


def test_budgets_by_default_are_powers_of_two_and_those_of_the_run():
    build = Provenance(metadata={"bayes": {"k": [3, 99, True], "tau": 0.25, "maj_k": 2}})
    rows = summarise(run_of(answers=tuple(ANSWERS), provenance=build)).rows
    assert [name for name in rows if name.startswith("pass@")] == [
        "pass@1", "pass@2", "pass@3", "pass@4",
    ]  # fmt: skip
    assert rows["g-pass@3_0.25"] == rows["pass@3"]
    votes = [by_hand.maj_at_k(row, given, 2) for row, given in zip(MATRIX, ANSWERS, strict=True)]
    assert rows["maj@2"] == pytest.approx(np.mean(votes))


@pytest.mark.parametrize("settings", [{"tau": 7, "maj_k": 0, "k": "2"}, "text"])
def test_settings_that_make_no_sense_are_left_aside(settings):
    build = Provenance(config={"metadata": {"bayes": settings}})
    rows = summarise(run_of(answers=tuple(ANSWERS), provenance=build)).rows
    assert {"pass@4", "g-pass@4_0.5", "maj@6"} <= set(rows)
    assert "pass@3" not in rows


def test_questions_with_different_numbers_of_trials():
    summary = summarise(run_of([[1, 0, 1, 1], [0, 1], [1, 1, 1]]))
    assert summary.n_range == (2, 4)
    assert [name for name in summary.rows if name.startswith("pass@")] == ["pass@1", "pass@2"]
    # two of four: 1 - C(1, 2)/C(4, 2); of two: 1; of three right ones: 1
    assert summary.rows["pass@2"] == pytest.approx((1 + 1 + 1) / 3)
    assert summary.rows["pass@1"] == pytest.approx((3 / 4 + 1 / 2 + 1) / 3)
    with refused("k", "range", 3):
        summarise(run_of([[1, 0, 1, 1], [0, 1], [1, 1, 1]]), ks=[3])


def test_a_question_without_trials_leaves_what_rests_on_the_prior():
    summary = summarise(run_of([[1, 0], []]))
    assert (summary.average, dict(summary.rows), summary.n_range) == (None, {}, (0, 2))
    # Beta(2, 2) and the uniform prior
    assert summary.paper.mu == pytest.approx(0.5)
    assert summary.paper.sigma == pytest.approx(math.sqrt(1 / 20 + 1 / 12) / 2)
    assert summary.to_dict()["avg"] is None


def test_rubric_categories_have_no_pass_family():
    run = run_of([[0, 2, 1], [2, 2, 0]], weights=(0.0, 0.25, 1.0))
    summary = summarise(run)
    assert dict(summary.rows) == {}
    counts = [[1, 1, 1], [1, 0, 2]]
    mu, sigma = by_hand.uniform_prior(counts, (0.0, 0.25, 1.0))
    assert (summary.paper.mu, summary.paper.sigma) == pytest.approx((mu, sigma))
    assert summary.intervals["paper"].seed == 0
    with refused("k", "unsupported"):
        summarise(run, ks=[1])


@pytest.mark.parametrize(("ks", "rule", "came"), [([], "empty", "none"), ([0], "range", 0)])
def test_budgets_that_make_no_sense(ks, rule, came):
    with refused("k", rule, came):
        summarise(run_of(), ks=ks)


def test_tokens_and_time_are_those_of_the_trials():
    tokens = tuple(np.arange(6.0) + 10 * i for i in range(5))
    seconds = tuple(np.full(6, 3.0) for _ in range(5))
    beside = tuple(np.array([1.0, 2, 3, 4, 0, np.nan]) for _ in range(5))
    measured = {"completion_tokens": tokens, "generated_s": seconds, "concurrency": beside}
    run = run_of(measured=measured)
    assert run.tokens == 5 * 15 + 6 * 10 * (0 + 1 + 2 + 3 + 4)
    assert run.busy_seconds == pytest.approx(5 * 3.0 * (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 + 1))
    missing = {"completion_tokens": (np.full(6, np.nan), *tokens[1:])}
    assert run_of(measured=missing).tokens is None


# -- groups --------------------------------------------------------------------------------------


def two_tasks(model="A"):
    item = run_of([[1, 1, 0, 1]] * 3, model, "one")
    return item, run_of([[0, 0, 1, 0, 0]], model, "two")


def test_means_of_tasks():
    summaries = [summarise(run) for run in two_tasks()]
    (group,) = summarise_groups(summaries, {"both": ["one", "two"]})
    assert (group.model, group.tasks, group.n_questions) == ("A", ("one", "two"), 4)
    for name, weights in (("size", (0.75, 0.25)), ("equal", (0.5, 0.5))):
        mean = group.means[name]
        assert mean.weights == weights
        first, second = (item.paper for item in summaries)
        mu = weights[0] * first.mu + weights[1] * second.mu
        sigma = math.sqrt((weights[0] * first.sigma) ** 2 + (weights[1] * second.sigma) ** 2)
        assert (mean.paper.mu, mean.paper.sigma) == pytest.approx((mu, sigma), abs=1e-12)
        outcomes = {item.run.task: item.run.outcomes for item in summaries}
        for scope in SCOPES:
            shared = mean_over_tasks(outcomes, dict(zip(outcomes, weights, strict=True)), scope)
            assert mean.learned[scope].mu == pytest.approx(shared.mu)
            assert mean.intervals[scope].low == pytest.approx(shared.interval().low)
            assert mean.learned[scope].scope == scope
    assert group.means["size"].average == pytest.approx(0.75 * 0.75 + 0.25 * 0.2)
    assert group.means["equal"].average == pytest.approx((0.75 + 0.2) / 2)


def test_the_interval_of_a_mean_holds_its_mass():
    # one question each: Beta(4, 2) and Beta(2, 5) under the uniform prior
    runs = [run_of([[1, 1, 0, 1]], "A", "one"), run_of([[0, 0, 1, 0, 0]], "A", "two")]
    (group,) = summarise_groups([summarise(run) for run in runs], {"both": ["one", "two"]})
    ends = group.means["equal"].intervals["paper"]
    first, second = stats.beta(4, 2), stats.beta(2, 5)
    for end, mass in ((ends.low, 0.025), (ends.high, 0.975)):
        below, _ = integrate.quad(lambda x, e=end: first.pdf(x) * second.cdf(2 * e - x), 0, 1)
        # of 20,000 draws
        assert below == pytest.approx(mass, abs=0.005)


def test_the_interval_of_a_mean_with_drawn_laws():
    rubric = run_of([[0, 2, 1], [2, 2, 0]], "A", "two", weights=(0.0, 0.25, 1.0))
    summaries = [summarise(run_of([[1, 0, 1]], "A", "one")), summarise(rubric)]
    (group,) = summarise_groups(summaries, {"both": ["one", "two"]})
    rng = np.random.default_rng(3)
    weights = np.array([0.0, 0.25, 1.0])
    rows = [rng.dirichlet(nu, 100_000) @ weights for nu in ([2, 2, 2], [2, 1, 3])]
    drawn = 0.5 * rng.beta(3, 2, 100_000) + 0.5 * np.mean(rows, axis=0)
    mean = group.means["equal"]
    ends = mean.intervals["paper"]
    assert (ends.low, ends.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.006)
    assert ends.seed == 0
    assert ends.mc_error > 0
    assert mean.paper.sigma == pytest.approx(drawn.std(), rel=0.02)


def test_groups_of_groups_and_models_that_lack_a_task():
    spec = IntervalSpec(method="normal")
    summaries = [summarise(run, spec) for run in (*two_tasks("A"), two_tasks("B")[0])]
    groups = {"all": ["part", "two"], "part": ["one"], "none": [], "round": ["round", "two"]}
    result = {(item.group, item.model): item.tasks for item in summarise_groups(summaries, groups)}
    assert result == {
        ("all", "A"): ("one", "two"),
        ("part", "A"): ("one",),
        ("part", "B"): ("one",),
        ("round", "A"): ("two",),
    }
