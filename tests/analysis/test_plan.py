"""Forecasts against futures that are simulated one by one, and costs against plain sums."""

from __future__ import annotations

import json

import numpy as np
import pytest
from _support import by_hand
from _support.errors import refused
from scipy import stats

from lm_eval_bayes.analysis.plan import plan_separation, plan_width
from lm_eval_bayes.runs.task_run import Provenance, TaskRun
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.outcomes import Outcomes

M, N = 15, 8


def build(model, seed, lift=0.0, m=M, n=N, **more):
    rng = np.random.default_rng(seed)
    p = np.clip(np.linspace(0.05, 0.9, m) + lift, 0.0, 1.0)
    matrix = (rng.random((m, n)) < p[:, None]).astype(int)
    return TaskRun.from_trials(model, "aime", matrix, [f"q{i}" for i in range(m)], **more)


def futures(run, extra, how_many, seed):
    """Simulate further trials from truths of the plain grid; return hbayes@N after them."""
    wrong, right = run.outcomes.counts.T
    truths = by_hand.LearnedPrior(right, wrong).draw(how_many, seed)
    rng = np.random.default_rng(seed + 1)
    for truth in truths:
        more = rng.binomial(extra, truth)
        counts = np.stack([wrong + extra - more, right + more], axis=1)
        yield hbayes_at_n(Outcomes.from_counts(counts))


@pytest.mark.slow
def test_simulated_futures_reach_the_width_as_often_as_forecast():
    run = build("a", 1)
    (line,) = plan_width([run], 0.06)
    f = line.forecast
    share = []
    for extra in (f.additional_low, f.additional, f.additional_high):
        widths = [item.interval().width for item in futures(run, extra, 60, extra)]
        share.append(np.mean(np.array(widths) <= 0.06))
    low, middle, high = share
    # 5%, 50% and 95%, give or take what 60 futures scatter
    assert low < 0.2
    assert 0.3 < middle < 0.75
    assert high > 0.8
    assert f.total == N + f.additional
    assert not line.reached


def test_half_of_simulated_futures_tell_two_models_apart():
    a, b = build("a", 1, 0.06), build("b", 2)
    plan = plan_separation([b, a])
    (line,) = plan.lines
    assert (line.models, plan.distinguishable) == (("a", "b"), ())
    needed = line.forecast.additional
    pairs = zip(futures(a, needed, 60, 5), futures(b, needed, 60, 55), strict=True)
    z = [abs(x.mu - y.mu) / np.hypot(x.sigma, y.sigma) for x, y in pairs]
    assert 0.3 < np.mean(np.array(z) >= stats.norm.ppf(0.975)) < 0.7


def test_only_pairs_that_are_close_are_planned_for():
    runs = [build("a", 1), build("b", 2, 0.02), build("c", 3, -0.4)]
    plan = plan_separation(runs)
    assert len(plan.distinguishable) == 2
    assert [set(line.models) for line in plan.lines] == [{"a", "b"}]
    assert plan_separation(runs[1:]).lines == ()
    json.dumps(plan.to_dict(), allow_nan=False)
    # all of one's questions were solved by both: nothing to be told apart by, however long
    twins = [TaskRun.from_trials(name, "x", [[1, 1]], ["q"]) for name in "ab"]
    (line,) = plan_separation(twins, max_trials=64).lines
    assert line.forecast.current == 0.0
    assert line.forecast.probability < 0.9


def test_pairs_that_need_questions_and_copies():
    """About other questions endless trials leave their differences; copies have no forecast."""
    runs = [build("a", 4), build("b", 20), build("c", 20)]
    plan = plan_separation(runs, IntervalSpec(scope="population"))
    assert plan.copies == (("b", "c"),)
    assert (plan.n_pairs, len(plan.lines)) == (3, 2)
    assert not any(line.forecast.reachable for line in plan.lines)
    assert all(line.total is None for line in plan.lines)
    (line,) = plan_separation(runs[:2]).lines
    assert line.forecast.reachable
    assert line.total == N + line.forecast.additional
    (alone,) = plan_separation(runs[1:]).copies
    assert alone == ("b", "c")


def test_a_width_that_is_reached():
    (line,) = plan_width([build("a", 1)], 0.9)
    assert line.reached
    assert line.trials.to_dict() == {"middle": 0, "low": 0, "high": 0}


def test_out_of_reach_about_questions_like_these():
    (line,) = plan_width([build("a", 1)], 0.05, IntervalSpec(scope="population"))
    assert line.forecast.additional is None
    assert line.trials.middle is None
    assert not line.forecast.reachable
    json.dumps(line.to_dict(), allow_nan=False)


def test_tokens_and_time_follow_from_what_trials_took():
    tokens = tuple(np.full(N, 10.0 * (i + 1)) for i in range(M))
    seconds = tuple(np.full(N, 6.0) for _ in range(M))
    beside = tuple(np.tile([2.0, 3.0], N // 2) for _ in range(M))
    measured = {"completion_tokens": tokens, "generated_s": seconds, "concurrency": beside}
    (line,) = plan_width([build("a", 1, measured=measured)], 0.12)
    a_round = 10.0 * sum(range(1, M + 1))
    f = line.forecast
    for needed, n in (
        ("middle", f.additional), ("low", f.additional_low), ("high", f.additional_high),
    ):  # fmt: skip
        assert getattr(line.trials, needed) == n * M
        assert getattr(line.tokens, needed) == pytest.approx(n * a_round)
        assert getattr(line.seconds, needed) == pytest.approx(n * M * (3.0 + 2.0) / 2)


def test_what_was_not_recorded_is_extrapolated():
    half = (np.full(N, np.nan), *(np.array([4.0] * (N - 1) + [np.nan]) for _ in range(M - 1)))
    (line,) = plan_width([build("a", 1, measured={"completion_tokens": half})], 0.12)
    # a question of which nothing is known is taken to be like the others
    assert line.tokens.middle == pytest.approx(line.forecast.additional * M * 4.0)
    both = plan_separation(
        [build("a", 1, 0.05, measured={"completion_tokens": half}), build("b", 2)]
    )
    (line,) = both.lines
    assert line.tokens is None  # of one of two models is not enough
    assert line.trials.middle == line.forecast.additional * 2 * M


@pytest.mark.parametrize(
    ("about", "repeats"),
    [
        (Provenance(generation_kwargs={"do_sample": False, "max_gen_toks": 9}), True),
        (Provenance(config={"output_type": "multiple_choice"}), True),
        (Provenance(generation_kwargs={"do_sample": True, "temperature": 0.6}), False),
        (Provenance(config={"output_type": "generate_until"}), False),
    ],
)
def test_trials_that_can_only_repeat_themselves(about, repeats):
    (line,) = plan_width([build("a", 1, n=1, provenance=about)], 0.2)
    assert line.repeats is line.to_dict()["repeats"] is repeats


def test_what_cannot_be_planned():
    with refused("max_trials", "range", 0):
        plan_width([build("a", 1)], 0.1, max_trials=0)
    with refused("RUN", "empty", "a"):
        plan_separation([build("a", 1)])
    with refused("RUN", "mismatch", "only a has q3, q4, q5 and 9 more"):
        plan_separation([build("a", 1), build("b", 2, m=3)])
