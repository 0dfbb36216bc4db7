"""A model's score over the settings in which it was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import to_plain
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    CONFIDENCE,
    IntArray,
    IntervalSpec,
    Posterior,
    SettingsDifference,
    SettingsPosterior,
    compare_simultaneously,
    difference_over_settings,
    errors_over_settings,
    score_over_settings,
)


def settings_posterior(
    run: TaskRun, spec: IntervalSpec, learned: Posterior | None = None
) -> tuple[SettingsPosterior | None, str]:
    """Return the posterior of a run's score over its settings, else a note on why there is none.

    Parameters
    ----------
    run : TaskRun
        The trials, of one setting or more.
    spec : IntervalSpec
        Of which the level and the seed count: intervals are equal-tailed, and of both scopes.
    learned : Posterior, optional
        hbayes@N of the run, of scope "population" and with this seed, where it is known already.

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
    reason = ""
    if run.scored:
        reason = "trials have scores"
    elif run.clusters is not None:
        reason = "questions are in clusters"
    elif run.outcomes.prior_counts.any():
        reason = "there are prior trials"
    elif run.settings and run.trials is None:
        reason = "only the counts of trials are known"
    labels = run.settings or ("",)
    if not reason:
        try:
            return score_over_settings(
                _counts(run),
                run.outcomes.weights,
                labels=labels,
                level=spec.level,
                seed=spec.seed,
                learned=learned,
            ), ""
        except InvalidInputError as error:  # such as settings that share no question
            reason = str(error)
    note = f"no interval about settings like these ({plural(len(labels), 'setting')}): {reason}"
    return None, note


def settings_difference(a: TaskRun, b: TaskRun, spec: IntervalSpec) -> SettingsDifference | None:
    """Return A − B in settings like these, on these questions, paired by settings of one name.

    None unless both models have several settings that can be counted, and the same questions.
    """
    if not (a.settings and b.settings) or {*a.question_ids} != {*b.question_ids}:
        return None
    of_a, of_b = (settings_posterior(run, spec)[0] for run in (a, b))
    return None if of_a is None or of_b is None else difference_over_settings(of_a, of_b)


def pairs_over_settings(
    runs: Sequence[TaskRun], spec: IntervalSpec, learned: Mapping[str, Posterior]
) -> int | None:
    """Return how many pairs of models are distinguishable in settings like these.

    On these questions, all pairs compared at once, with one spread of settings for all models.
    None unless every model has several settings that can be counted. `learned` is hbayes@N by
    model, of scope "population".
    """
    if len(runs) < 2 or not all(run.settings for run in runs):
        return None
    posteriors = [settings_posterior(run, spec, learned[run.model])[0] for run in runs]
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
        "like": posterior.like,
    }
    return {name: to_plain(value) for name, value in content.items()}
