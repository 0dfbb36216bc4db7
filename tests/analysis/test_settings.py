"""The interval of a run, in these settings and in settings like these."""

from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes import IntervalSpec, TaskRun, hbayes_at_n, interval_of_run
from lm_eval_bayes.analysis.anchor_study import anchor_study
from lm_eval_bayes.analysis.board import task_board
from lm_eval_bayes.analysis.comparison import compare_runs
from lm_eval_bayes.analysis.convergence import task_convergence
from lm_eval_bayes.analysis.plan import plan_separation, plan_width
from lm_eval_bayes.analysis.simulation import SimulatedBenchmark, interval_study
from lm_eval_bayes.analysis.summary import summarise
from lm_eval_bayes.stats import score_over_settings

LIKE = IntervalSpec(settings="like")


def run_of(name, n_settings=3, **further):
    """Return a run of a model on 12 questions, 4 trials in every setting."""
    rng = np.random.default_rng(6)
    trials = rng.binomial(1, rng.beta(2.0, 3.0, (12, 1)), (12, 4 * n_settings)).tolist()
    setting = (np.repeat(np.arange(n_settings), 4),) * 12
    several = {"settings": tuple("abc"[:n_settings]), "setting": setting} if n_settings > 1 else {}
    return TaskRun.from_trials(name, "t", trials, [*map(str, range(12))], **several, **further)


@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_the_interval_of_a_run(scope):
    run = run_of("m")
    trials = np.array(run.trials).reshape(12, 3, 4).sum(axis=2).T
    core = score_over_settings(np.stack([4 - trials, trials], axis=-1), level=0.9)
    these = interval_of_run(run, IntervalSpec(0.9, scope))
    assert (these.low, these.high) == (core.these[scope].low, core.these[scope].high)
    like = interval_of_run(run, IntervalSpec(0.9, scope, settings="like"))
    assert (like.low, like.high) == (core.like[scope].low, core.like[scope].high)
    assert (like.settings, like.scope, like.level, these.settings) == ("like", scope, 0.9, "these")
    normal = interval_of_run(run, IntervalSpec(0.9, scope, "normal", settings="like"))
    assert normal.high - normal.low == pytest.approx(2 * 1.644854 * core.distributions[scope].sd)


def test_what_is_not_known_in_settings_like_these_is_refused():
    with refused("run", "unsupported", "1 setting"):
        interval_of_run(run_of("m", 1), LIKE)
    note = "no interval about settings like these (3 settings): questions are in clusters"
    with refused("run", "unsupported", note):
        interval_of_run(run_of("m", clusters=["u", "v"] * 6), LIKE)
    with refused("run", "type", "list"):
        interval_of_run([run_of("m")], LIKE)
    with refused("settings", "choice", "others"):
        IntervalSpec(settings="others")
    a, b = runs = [run_of("a"), run_of("b")]
    simulated = SimulatedBenchmark.even(1, 0.1, 0.0, 2.0, 30)
    for ask in (
        lambda: hbayes_at_n(a.outcomes).interval_by(LIKE),
        lambda: summarise(a, LIKE),
        lambda: task_board(runs, LIKE),
        lambda: compare_runs([a], [b], LIKE),
        lambda: plan_width([a], 0.1, LIKE),
        lambda: plan_separation(runs, LIKE),
        lambda: task_convergence(runs, LIKE, replicates=2),
        lambda: anchor_study(runs, LIKE),
        lambda: interval_study(simulated, [4], LIKE, replicates=1),
    ):
        with refused("settings", "unsupported", "like"):
            ask()
