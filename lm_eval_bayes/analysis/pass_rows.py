"""The pass family and maj@k of a run, by the names that the harness's tables give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.maj_at_k import maj_at_k
from lm_eval_bayes.stats.pass_family.estimators import (
    g_pass_at_k,
    mg_pass_at_k,
    pass_at_k,
    pass_hat_k,
)
from lm_eval_bayes.stats.validation import as_real, check_count

#: The threshold of G-Pass and the most votes of maj@k, where the run says nothing.
TAU, VOTES = 0.5, 8
#: Stands for every right answer in a vote; no text equals it.
_RIGHT = ("right",)


def pass_rows(run: TaskRun, ks: Iterable[int] | None, seed: int) -> dict[str, float]:
    """Return the rows that a harness table has of these trials, in its order.

    Parameters
    ----------
    run : TaskRun
        The trials. Where they are more than right or wrong, or some question has none, there
        are no rows.
    ks : iterable of int or None
        The budgets, each at most the fewest trials of a question; None for powers of two, and
        those that the run itself was given.
    seed : int
        Seed of the votes, where they have to be drawn.

    Raises
    ------
    InvalidInputError
        If `ks` break their rule, or are asked for where there are no rows.

    Examples
    --------
    >>> run = TaskRun.from_trials("A", "aime", [[0, 1, 1, 0], [0, 0, 0, 0]], ["q1", "q2"])
    >>> {name: round(value, 3) for name, value in pass_rows(run, [2], 0).items()}
    {'pass@2': 0.417, 'pass^2': 0.083, 'g-pass@2_0.5': 0.417, 'mg-pass@2': 0.083}
    """
    most, outcomes = run.n_common, run.outcomes
    asked = None if ks is None else _checked(ks, run)
    if not (run.binary and outcomes.weights[0] < outcomes.weights[1] and most):
        return {}
    settings = _given(run)
    budgets = _usual(settings, most) if asked is None else asked
    # At k = 1 the whole family is avg@N, so one row of it is enough.
    above_one = [k for k in budgets if k > 1]
    tau = as_real(settings.get("tau", TAU))
    tau = tau if tau is not None and 0.0 <= tau <= 1.0 else TAU
    rows = {f"pass@{k}": pass_at_k(outcomes, k).value for k in budgets}
    rows |= {f"pass^{k}": pass_hat_k(outcomes, k).value for k in above_one}
    rows |= {f"g-pass@{k}_{tau:g}": g_pass_at_k(outcomes, k, tau).value for k in above_one}
    rows |= {f"mg-pass@{k}": mg_pass_at_k(outcomes, k).value for k in above_one}
    if run.answers is not None and run.trials is not None:
        given: Any = settings.get("maj_k")
        votes = given if _is_budget(given, most) else min(VOTES, most)
        rows[f"maj@{votes}"] = _majority(run, votes, seed)
    return rows


def _checked(ks: Iterable[int], run: TaskRun) -> list[int]:
    """Return the budgets that were asked for, rising."""
    budgets = sorted({check_count("k", k, 1) for k in ks})
    if not budgets:
        raise InvalidInputError.of("k", "name at least one k", "none")
    if not run.binary:
        rule = f"be left out for {run.task}, whose trials are more than right or wrong"
        raise InvalidInputError.of("k", rule, budgets)
    if budgets[-1] > run.n_common:
        rule = (
            f"be at most N, the trials that every question has (N={run.n_common} for "
            f"{run.model} on {run.task})"
        )
        raise InvalidInputError.of("k", rule, budgets[-1])
    return budgets


def _usual(settings: Mapping[str, Any], most: int) -> list[int]:
    """Return powers of two up to N, and what the run was given."""
    powers = {2**i for i in range(most.bit_length()) if 2**i <= most}
    given = settings.get("k")
    if isinstance(given, (list, tuple)):
        powers |= {k for k in given if _is_budget(k, most)}
    return sorted(powers)


def _is_budget(k: Any, most: int) -> bool:
    return isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= most


def _given(run: TaskRun) -> Mapping[str, Any]:
    """Return the settings that the run was sampled with, as the harness wrote them."""
    metadata = run.made.metadata or run.made.config.get("metadata")
    settings = metadata.get("bayes") if isinstance(metadata, Mapping) else None
    return settings if isinstance(settings, Mapping) else {}


def _majority(run: TaskRun, k: int, seed: int) -> float:
    """Return maj@k. Every right answer says the same, however it is written."""
    trials = run.trials or ()
    marks = [[bool(category) for category in one] for one in trials]
    answers = [
        [_RIGHT if right else answer for answer, right in zip(given, found, strict=True)]
        for given, found in zip(run.answers or (), marks, strict=True)
    ]
    return float(maj_at_k(answers, marks, k, seed=seed).value)
