"""The effect of prior trials of an older version on a ranking, as in [Hariri 2026, Fig. 2]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.convergence.kendall import kendall_tau_b
from lm_eval_bayes.stats.validation import (
    FloatArray,
    as_real,
    check_integer,
    check_seed,
    check_size,
    numeric,
    read_only,
)

#: Replicates worked on at a time, and the questions of all models in them.
_BLOCK, _HELD = 500, 10_000_000
#: All pairs of models are compared.
_MOST_MODELS = 1000

#: The log-odds sd of an update at which the old and the new ranking agree with τ ≈ .88.
UPDATE_SD = 0.235


@dataclass(frozen=True, eq=False)
class PriorStudy(Record):
    """Agreement with the true new ranking, with D prior trials of the old versions.

    Attributes
    ----------
    n_prior : tuple of int
        The values of D.
    n_trials : tuple of int
        The values of N.
    tau : array, shape (len(n_prior), len(n_trials))
        Mean τ_b between the Bayes@N ranking and the true ranking of the new versions.
    error : array, same shape
        Monte-Carlo standard error of the gain over D = 0, or of τ itself in that row.
    tau_update : float
        Mean τ_b between the true rankings of the old and the new versions.
    changed : float
        Share of replicates in which these two rankings differ.
    n_models, n_questions : int
        L and M.
    update_sd : float
        Sd of the updates, in log-odds.
    replicates, seed : int
        Their number and the seed they come from.
    """

    n_prior: tuple[int, ...]
    n_trials: tuple[int, ...]
    tau: FloatArray
    error: FloatArray
    tau_update: float
    changed: float
    n_models: int
    n_questions: int
    update_sd: float
    replicates: int
    seed: int


def prior_study(
    n_prior: Sequence[int] = (0, 1, 2, 4, 8, 16),
    n_trials: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    *,
    n_models: int = 8,
    n_questions: int = 30,
    update_sd: float = UPDATE_SD,
    replicates: int = 2000,
    seed: int = 0,
) -> PriorStudy:
    """Rank updated models with and without trials of their old versions [Hariri 2026, Fig. 2].

    In each replicate the old version of model i = 1..8 has questions p_α ~ Beta(i + 3, 12 − i);
    the log-odds of all questions of a model then move by one N(0, update_sd²) number. D trials
    of the old version become R0, N of the new one R, and the ranking by Bayes@N (λ = 1) is held
    against the true ranking of the new versions. For L models other than eight the parameters
    run evenly over the same range.

    The paper states the Beta(i + 3, 12 − i) and the results; the size of the updates and M are
    reconstructed here. The defaults reproduce both of its numbers: a mean τ of .88 between the
    old and the new ranking, and about 86% of rankings changed.

    Parameters
    ----------
    n_prior, n_trials : sequence of int
        The values of D (at least 0; 0 must be among them) and of N (at least 1), ascending.
    n_models, n_questions : int
        L from 2 to 1,000, and M from 1 to 10⁷ (fewer for many models).
    update_sd : float
        At least 0, in log-odds.
    replicates : int
        How many, 2 to 10⁷.
    seed : int
        The seed of all draws.

    Returns
    -------
    PriorStudy

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> study = prior_study((0, 2, 16), (1, 64), replicates=500)
    >>> bool(study.tau[1, 0] > study.tau[0, 0]), bool(study.tau[2, 1] < study.tau[0, 1])
    (True, True)
    """
    depths = _ascending("n_prior", n_prior, 0)
    if depths[0] != 0:
        raise InvalidInputError.of("n_prior", "begin with 0, to compare with", depths)
    lengths = _ascending("n_trials", n_trials, 1)
    n_models = check_integer("n_models", n_models, 2, _MOST_MODELS)
    n_questions = check_size("n_questions", n_questions, 1, n_models)
    sd = as_real(update_sd)
    if sd is None or not 0.0 <= sd < np.inf:
        raise InvalidInputError.of("update_sd", "be a finite number of at least 0", update_sd)
    replicates, seed = check_size("replicates", replicates, 2), check_seed(seed)
    rng = np.random.default_rng(seed)
    i = np.linspace(1.0, 8.0, n_models)[:, None]
    shape = (len(depths), len(lengths))
    total, square, defined = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    gain, gain_square = np.zeros(shape), np.zeros(shape)
    agreement, changed = 0.0, 0
    block = max(1, min(_BLOCK, _HELD // (n_models * n_questions)))
    for start in range(0, replicates, block):
        size = min(block, replicates - start)
        old = rng.beta(i + 3.0, 12.0 - i, (size, n_models, n_questions))
        shift = sd * rng.standard_normal((size, n_models, 1))
        new = special.expit(special.logit(old) + shift)
        truth = new.mean(axis=2)
        update = kendall_tau_b(old.mean(axis=2), truth)
        agreement += float(update.sum())
        changed += int((update < 1.0).sum())
        prior = _successes(old, depths, rng)
        new_successes = _successes(new, lengths, rng)
        # With equal N and D the order of μ is the order of all successes together.
        tau = kendall_tau_b(prior[:, None] + new_successes[None], truth)
        is_defined = ~np.isnan(tau)
        tau = np.where(is_defined, tau, 0.0)
        defined += is_defined.sum(axis=2)
        total += tau.sum(axis=2)
        square += np.square(tau).sum(axis=2)
        more = np.where(is_defined & is_defined[0], tau - tau[0], 0.0)
        gain += more.sum(axis=2)
        gain_square += np.square(more).sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = gain_square / defined - np.square(gain / defined)
        spread[0] = square[0] / defined[0] - np.square(total[0] / defined[0])
        error = np.sqrt(np.maximum(spread, 0.0) / defined)
        mean = total / defined
    return PriorStudy(
        n_prior=depths,
        n_trials=lengths,
        tau=read_only(mean, np.float64),
        error=read_only(error, np.float64),
        tau_update=agreement / replicates,
        changed=changed / replicates,
        n_models=n_models,
        n_questions=n_questions,
        update_sd=sd,
        replicates=replicates,
        seed=seed,
    )


def _successes(
    p: FloatArray, sizes: Sequence[int], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Count successes over all questions after each number of trials, (len(sizes), B, L)."""
    steps = np.diff(np.array([0, *sizes]))
    return np.cumsum([rng.binomial(step, p).sum(axis=2) for step in steps], axis=0)


def _ascending(name: str, values: Sequence[int], minimum: int) -> tuple[int, ...]:
    """Return distinct ascending integers of at least `minimum`."""
    array = numeric(name, values)
    rule = f"be one or more ascending integers of at least {minimum}"
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidInputError.of(name, rule, values)
    if array.min() < minimum or (np.diff(array) <= 0).any():
        raise InvalidInputError.of(name, rule, values)
    return tuple(array.tolist())
