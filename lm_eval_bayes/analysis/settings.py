"""A model's score over the settings in which it was run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import to_plain
from lm_eval_bayes._util.text import format_interval, format_score, plural, probability_statement
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    CONFIDENCE,
    DEFAULT_INTERVAL,
    IntArray,
    Interval,
    IntervalSpec,
    SettingsDifference,
    SettingsPosterior,
    Spread,
    compare_simultaneously,
    difference_over_settings,
    errors_over_settings,
    hbayes_by,
    score_interval,
    score_over_settings,
)


def settings_posterior(run: TaskRun, spec: IntervalSpec) -> tuple[SettingsPosterior | None, str]:
    """Return the posterior of a run's score over its settings, else a note on why there is none.

    Parameters
    ----------
    run : TaskRun
        The trials, of one setting or more.
    spec : IntervalSpec
        Of which the level and the seed count: intervals are equal-tailed, and of both scopes.

    Examples
    --------
    >>> import numpy as np
    >>> trials, setting = [[0, 1, 1, 0], [1, 1, 0, 1]], (np.array([0, 0, 1, 1]),) * 2
    >>> run = TaskRun.from_trials(
    ...     "A", "aime", trials, ["p", "q"], settings=("one", "two"), setting=setting
    ... )
    >>> posterior, note = settings_posterior(run, IntervalSpec())
    >>> dict(zip(posterior.labels, posterior.scores.tolist()))
    {'one': 0.75, 'two': 0.5}
    """
    return _posterior(run, spec.level, spec.seed)


@lru_cache(maxsize=128)
def _posterior(run: TaskRun, level: float, seed: int) -> tuple[SettingsPosterior | None, str]:
    reasons = {
        "trials have scores": run.scored,
        "questions are in clusters": run.clusters is not None,
        "there are prior trials": run.outcomes.prior_counts.any(),
        "only the counts of trials are known": run.settings and run.trials is None,
    }
    reason = next((reason for reason, holds in reasons.items() if holds), "")
    labels = run.settings or ("",)
    if not reason:
        try:
            return score_over_settings(
                _counts(run), run.outcomes.weights, labels=labels, level=level, seed=seed
            ), ""
        except InvalidInputError as error:
            if error.rule != "unsupported":
                raise
            reason = "settings share no questions"
    note = f"no interval about settings like these ({plural(len(labels), 'setting')}): {reason}"
    return None, note


def interval_of_run(run: TaskRun, spec: IntervalSpec = DEFAULT_INTERVAL) -> Interval:
    """Return the credible interval of the score of a run.

    In these settings it is that of `lm_eval_bayes.hbayes_at_n`. In settings like these the sd
    between settings is integrated out; with two settings it rests on its prior, see
    :mod:`lm_eval_bayes.stats.settings.model`.

    Parameters
    ----------
    run : TaskRun
        The trials of a model on a task.
    spec : IntervalSpec
        Which interval: `settings` and `scope` say what it is about.

    Raises
    ------
    InvalidInputError
        If `spec` asks for settings like these, and the run has one setting alone, or trials that
        cannot be counted by settings.

    Examples
    --------
    >>> import numpy as np
    >>> trials, setting = [[0, 1, 1, 0], [1, 1, 0, 1]], (np.array([0, 0, 1, 1]),) * 2
    >>> run = TaskRun.from_trials(
    ...     "A", "aime", trials, ["p", "q"], settings=("one", "two"), setting=setting
    ... )
    >>> these, like = interval_of_run(run), interval_of_run(run, IntervalSpec(settings="like"))
    >>> like.low < these.low < these.high < like.high
    True
    """
    if not isinstance(run, TaskRun):
        rule = "be a TaskRun, as `read_runs` and `read_frame` return"
        raise InvalidInputError.of("run", "type", rule, type(run).__name__)
    if spec.settings == "these":
        return hbayes_by(run.outcomes, spec).interval()
    posterior, note = settings_posterior(run, spec)
    if posterior is None or not posterior.is_known:
        rule = 'have trials that can be counted in two settings or more for settings "like" these'
        raise InvalidInputError.of("run", "unsupported", rule, note or "1 setting")
    score = posterior.distributions[spec.scope]
    return score_interval(score, (score.mean, score.sd), posterior.benchmark.bounds, spec)


def settings_difference(
    a: TaskRun, b: TaskRun, spec: IntervalSpec, variance: float = 0.0
) -> SettingsDifference | None:
    """Return A − B in settings like these, paired by settings of one name where all agree.

    None unless a model has several settings, both can be counted, and have the same questions. In
    scope "population", `variance` is that of the difference in these settings; what it is above
    that on these questions is added.
    """
    if not (a.settings or b.settings) or {*a.question_ids} != {*b.question_ids}:
        return None
    of_a, of_b = (settings_posterior(run, spec)[0] for run in (a, b))
    if of_a is None or of_b is None:
        return None
    added = max(variance - of_a.benchmark.sigma**2 - of_b.benchmark.sigma**2, 0.0)
    added *= spec.scope == "population"
    return difference_over_settings(of_a, of_b, question_variance=added)


def pairs_over_settings(runs: Sequence[TaskRun], spec: IntervalSpec) -> int | None:
    """Return how many pairs of models are distinguishable in settings like these.

    On these questions, all pairs compared at once, with one spread of settings for all models,
    which a model with one setting takes from the others; two models as by `settings_difference`.
    None unless all models can be counted, and one has several settings.
    """
    if len(runs) == 2:
        difference = settings_difference(runs[0], runs[1], IntervalSpec(CONFIDENCE, seed=spec.seed))
        return None if difference is None else int(not difference.low <= 0.0 <= difference.high)
    if len(runs) < 2 or not any(run.settings for run in runs):
        return None
    posteriors = [settings_posterior(run, spec)[0] for run in runs]
    counted = [posterior for posterior in posteriors if posterior is not None]
    if len(counted) < len(runs):
        return None
    errors = errors_over_settings(counted)
    compared = compare_simultaneously([errors], len(runs), CONFIDENCE, spec.seed)
    return int(compared.separated.sum())


def _counts(run: TaskRun) -> IntArray:
    """Return how often each category occurred, by setting and question, shape (S, M, C+1)."""
    of_all = run.outcomes.counts
    if run.setting is None or run.trials is None:
        return of_all[None]
    counts = np.zeros((len(run.settings), *of_all.shape), dtype=np.int64)
    for question, (setting, trials) in enumerate(zip(run.setting, run.trials, strict=True)):
        np.add.at(counts[:, question], (setting, trials), 1)
    return counts


def spread_sentence(spread: Spread, n: int, level: float) -> str:
    """Return whether n settings differ by more than trials explain."""
    by = "no more than" if spread.is_explained else "by more than"
    seen, of_trials = format_score(spread.sd_seen), format_score(spread.sd_of_trials)
    return (
        f"{plural(n, 'setting')} differ {by} trials explain "
        f"({probability_statement('p', spread.p_of_trials)}): sd {seen}, by trials alone "
        f"{of_trials}; between settings {format_score(spread.sd.median)} ({100 * level:g}%: "
        f"{format_interval(spread.sd)})."
    )


def settings_record(run: TaskRun, spec: IntervalSpec) -> dict[str, Any] | None:
    """Return what `settings_to_dict` says of a run; None for one setting."""
    return settings_to_dict(settings_posterior(run, spec)[0]) if run.settings else None


def settings_to_dict(posterior: SettingsPosterior | None) -> dict[str, Any] | None:
    """Return the scores of settings and what they tell of others, as plain JSON types."""
    if posterior is None or posterior.spread is None:
        return None
    sd = posterior.spread.sd
    content = {
        "n": len(posterior.labels),
        "labels": posterior.labels,
        "scores": posterior.scores,
        "sd": sd.median,
        "low": sd.low,
        "high": sd.high,
        "sd_of_trials": posterior.spread.sd_of_trials,
        "p_of_trials": posterior.spread.p_of_trials,
        "like": posterior.like,
    }
    return {name: to_plain(value) for name, value in content.items()}
