"""The pass family and maj@k of a run: estimates and posteriors by the names of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lm_eval_bayes._util.validation import as_real, check_count
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    IntervalSpec,
    Posterior,
    estimate,
    maj_at_k,
    maj_at_k_posterior,
    pass_posteriors,
    posterior_row,
    quantities_by_row,
    vote_candidates,
)
from lm_eval_bayes.stats import family_notes as family_notes

#: The threshold of G-Pass and the largest k of maj@k, unless the run's settings name others.
_DEFAULT_TAU, _DEFAULT_MAJ_K = 0.5, 8


def pass_rows(
    run: TaskRun,
    spec: IntervalSpec,
    ks: Iterable[int] | None = None,
    *,
    thresholds: bool = True,
    score: Posterior | None = None,
) -> tuple[dict[str, float], dict[str, Posterior]]:
    """Return the pass family and maj@k of a run, by the row names of the harness's tables.

    Estimates from the saved trials, and posteriors.

    Parameters
    ----------
    run : TaskRun
        The trials. If they are not right or wrong, or a question has none, there are no rows. Of
        scores, those that reach the threshold of the task are right.
    spec : IntervalSpec
        Scope, level, method and seed of the posteriors.
    ks : iterable of int, optional
        The values of k, each at most the fewest trials of a question. By default powers of two
        and those of the run's own settings.
    thresholds : bool
        Whether G-Pass and mG-Pass are among the rows.
    score : Posterior, optional
        hbayes@N of the run with the settings of `spec`, where it is known already.

    Raises
    ------
    InvalidInputError
        If `ks` break their rule, or are given for trials that are not right or wrong.

    Examples
    --------
    >>> run = TaskRun.from_trials("A", "aime", [[0, 1, 1, 0], [0, 0, 0, 0]], ["q1", "q2"])
    >>> estimates, posteriors = pass_rows(run, IntervalSpec(), [2])
    >>> {name: round(value, 3) for name, value in estimates.items()}
    {'pass@2': 0.417, 'pass^2': 0.083, 'g-pass@2_0.5': 0.417, 'mg-pass@2': 0.083}
    """
    n_max, outcomes = run.n_common, run.right_or_wrong
    given_ks = None if ks is None else _checked_ks(ks, run)
    if outcomes is None or not n_max:
        return {}, {}
    settings = _bayes_settings(run)
    ks = _default_ks(run, settings) if given_ks is None else given_ks
    tau = as_real(settings.get("tau", _DEFAULT_TAU))
    tau = tau if tau is not None and 0.0 <= tau <= 1.0 else _DEFAULT_TAU
    quantities = quantities_by_row(ks, tau if thresholds else None)
    estimates = {name: estimate(outcomes, quantity).value for name, quantity in quantities.items()}
    if run.scored or outcomes.prior_counts.any():
        score = None  # the family is of the trials that the estimates are from
    family = pass_posteriors(
        outcomes.without_prior(),
        list(quantities.values()),
        scope=spec.scope,
        seed=spec.seed,
        score=score,
    )
    posteriors = dict(zip(map(posterior_row, quantities), family, strict=True))
    if run.answers is not None and run.trials is not None:
        maj_k = _maj_k(settings, n_max)
        votes = vote_candidates(run.answers, run.trials)
        estimates[f"maj@{maj_k}"] = maj_at_k(*votes, maj_k).value
        posteriors[posterior_row(f"maj@{maj_k}")] = maj_at_k_posterior(
            *votes, maj_k, spec.scope, seed=spec.seed
        )
    return estimates, {name: with_settings(post, spec) for name, post in posteriors.items()}


def with_settings(posterior: Posterior, spec: IntervalSpec) -> Posterior:
    """Return a posterior whose `interval()` has this level and method."""
    return replace(posterior, level=spec.level, method=spec.method)


def rows_to_dict(posteriors: Mapping[str, Posterior]) -> dict[str, Any]:
    """Return mean, sd and interval of every row, as plain JSON types."""
    return {
        name: {"mu": post.mu, "sigma": post.sigma, "interval": post.interval().to_dict()}
        for name, post in posteriors.items()
    }


def _checked_ks(ks: Iterable[int], run: TaskRun) -> list[int]:
    """Return the given values of k in ascending order."""
    ascending = sorted({check_count("k", k, 1) for k in ks})
    if not ascending:
        raise InvalidInputError.of("k", "empty", "have at least one value", "none")
    if not run.binary and run.right_or_wrong is None:
        kind = "have scores and no threshold" if run.scored else "are not just right or wrong"
        rule = f"be left out for {run.task}, whose trials {kind}"
        raise InvalidInputError.of("k", "unsupported", rule, ascending)
    if ascending[-1] > run.n_common:
        rule = (
            f"be at most N, the trials that every question has (N={run.n_common} for "
            f"{run.model} on {run.task})"
        )
        raise InvalidInputError.of("k", "range", rule, ascending[-1])
    return ascending


def _default_ks(run: TaskRun, settings: Mapping[str, Any]) -> list[int]:
    """Return powers of two up to N, and the k of the run's own settings and of its tool."""
    n_max = run.n_common
    ks = {k for k in run.provenance.ks if k <= n_max} | {2**i for i in range(n_max.bit_length())}
    setting = settings.get("k")
    if isinstance(setting, (list, tuple)):
        ks |= {k for k in setting if _is_valid_k(k, n_max)}
    return sorted(ks)


def _maj_k(settings: Mapping[str, Any], n_max: int) -> int:
    """Return the k of maj@k: that of the run's settings, where it is not the default for their N.

    Runs that were merged have more trials than the settings of each say.
    """
    k: Any = settings.get("maj_k")
    n = settings.get("n")
    if _is_valid_k(k, n_max) and not (isinstance(n, int) and k == min(_DEFAULT_MAJ_K, n)):
        return int(k)
    return min(_DEFAULT_MAJ_K, n_max)


def _is_valid_k(k: Any, n_max: int) -> bool:
    return isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= n_max


def _bayes_settings(run: TaskRun) -> Mapping[str, Any]:
    """Return the task's `metadata: bayes:` settings, as the harness logged them."""
    metadata = run.provenance.metadata or run.provenance.config.get("metadata")
    settings = metadata.get("bayes") if isinstance(metadata, Mapping) else None
    return settings if isinstance(settings, Mapping) else {}
