"""Simulated models with known true scores, and a study of priors with them [Hariri 2026].

A mimic (a biased-coin model) answers question α correctly with probability p_α, every trial
independently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks, numeric, read_only
from lm_eval_bayes.stats.convergence.kendall import kendall_tau_b
from lm_eval_bayes.stats.distributions.base import beta_quantile
from lm_eval_bayes.stats.validation import (
    check_non_negative,
    check_real,
    check_rising,
    check_seed,
    check_size,
)


def simulate_outcomes(p: npt.ArrayLike, n_trials: int, *, seed: int = 0) -> IntArray:
    """Simulate `n_trials` outcomes of every question.

    Parameters
    ----------
    p : array, shape (..., M)
        Probability of a correct trial, (L, M) for L models or (M,) for one; in [0, 1].
    n_trials : int
        N, 1 to 10⁷ (fewer for many questions).
    seed : int
        Seed of the outcomes.

    Returns
    -------
    array of int, shape (..., M, N)
        1 where correct.

    Raises
    ------
    InvalidInputError
        If a probability lies outside [0, 1], or `n_trials` or `seed` breaks its rule.

    Examples
    --------
    >>> R = simulate_outcomes([[0.1, 0.9], [0.5, 0.5]], 2000, seed=3)
    >>> R.shape, R.mean(axis=2).round(1).tolist()
    ((2, 2, 2000), [[0.1, 0.9], [0.5, 0.5]])
    """
    probabilities = _check_p("p", p)
    n_trials = check_size("n_trials", n_trials, 1, probabilities.size)
    rng = np.random.default_rng(check_seed(seed))
    is_right = rng.random((*probabilities.shape, n_trials)) < probabilities[..., None]
    return is_right.astype(np.int64)


def beta_mimics(
    a: npt.ArrayLike, b: npt.ArrayLike, n_questions: int, *, seed: int = 0
) -> FloatArray:
    """Draw mimics whose questions have p_α ~ Beta(a, b).

    Parameters
    ----------
    a, b : array, shape (L,)
        Beta parameters of the L models, above 0.
    n_questions : int
        M, 1 to 10⁷ (fewer for many models).
    seed : int
        Seed of the draws.

    Returns
    -------
    array, shape (L, M)

    Raises
    ------
    InvalidInputError
        If a parameter is not above 0, or another argument breaks its rule.

    Examples
    --------
    The eight models of [Hariri 2026, Fig. 2], i = 1..8:

    >>> i = np.arange(1, 9)
    >>> beta_mimics(i + 3, 12 - i, 20_000).mean(axis=1).round(2).tolist()
    [0.27, 0.33, 0.4, 0.47, 0.53, 0.6, 0.67, 0.73]
    """
    first, second = _check_beta(a, b, 0.0)
    n_questions = check_size("n_questions", n_questions, 1, first.size)
    rng = np.random.default_rng(check_seed(seed))
    return rng.beta(first[:, None], second[:, None], (first.size, n_questions))


def mimics_with_means(
    means: npt.ArrayLike, n_questions: int, *, strength: float = 2.0
) -> FloatArray:
    """Return mimics whose mean over the questions is exactly as given.

    The M values are the midpoint quantiles of Beta(s·m, s(1−m)), the same in every call, with
    m chosen such that their mean over the questions is the wanted one. So the true score of
    mimic l is means[l], and two equal means are a true tie. Question α is the α-th hardest
    for every model.

    Parameters
    ----------
    means : array, shape (L,)
        True scores, strictly between 0 and 1.
    n_questions : int
        M, 1 to 10⁷ (fewer for many models).
    strength : float
        s in (0, 1e9]: small makes questions very easy or very hard, large makes them alike.

    Returns
    -------
    array, shape (L, M)

    Raises
    ------
    InvalidInputError
        If a mean is outside (0, 1), or another argument breaks its rule.

    Examples
    --------
    >>> p = mimics_with_means([0.3642, 0.6213], 30)
    >>> p.mean(axis=1).round(12).tolist(), bool(p.min() < 0.01), bool(p.max() > 0.99)
    ([0.3642, 0.6213], True, True)
    """
    wanted = numeric("means", means).astype(np.float64)
    if wanted.ndim != 1 or wanted.size == 0:
        got = f"shape {wanted.shape}"
        raise InvalidInputError.of("means", "shape", "be 1-D, one entry per model", got)
    if not ((wanted > 0.0) & (wanted < 1.0)).all():
        got = wanted.tolist()
        raise InvalidInputError.of("means", "range", "lie strictly between 0 and 1", got)
    n_questions = check_size("n_questions", n_questions, 1, wanted.size)
    rule = "be a finite number above 0, at most 1e9"
    s = check_real("strength", strength, rule, lambda x: 0.0 < x <= 1e9)
    u = (np.arange(n_questions) + 0.5) / n_questions
    low, high = np.zeros_like(wanted), np.ones_like(wanted)
    # the mean of the quantiles rises with m: sixty halvings reach the last digit
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = _quantiles(u, s, middle).mean(axis=1) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return _quantiles(u, s, 0.5 * (low + high))


def update_mimics(
    a: npt.ArrayLike, b: npt.ArrayLike, n_questions: int, *, versions: int = 1, seed: int = 0
) -> FloatArray:
    """Draw new versions of mimics whose questions had p_α ~ Beta(a, b) [Hariri 2026, §2.8].

    A new version of a model has p_α ~ Beta(a + σ, b + σ'), where σ and σ' are −1 or 1 with equal
    probability, once per model and version. All M probabilities are drawn anew: a model and its
    update agree in how good they are, and not in which questions are hard for them.

    Parameters
    ----------
    a, b : array, shape (L,)
        Beta parameters of the L models, above 1.
    n_questions : int
        M, 1 to 10⁷ (fewer for many models).
    versions : int
        How many new versions of all models, 1 to 10⁷ (fewer for many models and questions).
    seed : int
        Seed of the draws.

    Returns
    -------
    array, shape (versions, L, M)

    Raises
    ------
    InvalidInputError
        If a parameter is not above 1, or another argument breaks its rule.

    Examples
    --------
    >>> i = np.arange(1, 9)
    >>> new = update_mimics(i + 3, 12 - i, 30, versions=2000)
    >>> new.shape, new.mean(axis=(0, 2)).round(2).tolist()
    ((2000, 8, 30), [0.27, 0.33, 0.4, 0.47, 0.53, 0.6, 0.67, 0.74])
    """
    first, second = _check_beta(a, b, 1.0)
    n_questions = check_size("n_questions", n_questions, 1, first.size)
    versions = check_size("versions", versions, 1, first.size * n_questions)
    rng = np.random.default_rng(check_seed(seed))
    return _updates(first, second, (versions, first.size, n_questions), rng)


def _updates(
    a: FloatArray, b: FloatArray, shape: tuple[int, int, int], rng: np.random.Generator
) -> FloatArray:
    """Draw new versions of models with Beta parameters a and b, each (L,)."""
    shifts = rng.choice((-1.0, 1.0), (2, *shape[:2], 1))
    return np.asarray(rng.beta(a[:, None] + shifts[0], b[:, None] + shifts[1], shape))


def expected_z(p: npt.ArrayLike, other: npt.ArrayLike, n_trials: npt.ArrayLike) -> FloatArray:
    """Return the expected z of two mimics after N trials.

    z = |E μ − E μ'| / sqrt(E σ² + E σ'²) under Bayes@N with the uniform prior
    [Hariri 2026, §2.5, Fig. 3], the expectations over the trials' outcomes in closed form:
    E μ = mean of (1 + N p_α)/(N + 2), and
    E σ² = Σ ((N p_α + 1)(N q_α + 1) − N p_α q_α)/((N + 2)²(N + 3))/M² with q = 1 − p.

    Parameters
    ----------
    p, other : array, shape (M,) and (M',)
        Probability of a correct trial on each question, in [0, 1].
    n_trials : int or array of int
        N, at least 1.

    Returns
    -------
    array, shape of `n_trials`

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    Two models .0133 apart on thirty questions, not distinguishable at N = 80 [Hariri 2026, §3.1]:

    >>> a, b = mimics_with_means([0.6080, 0.6213], 30)
    >>> expected_z(a, b, [80, 240]).round(2).tolist()
    [1.14, 2.0]
    """
    trials = numeric("n_trials", n_trials)
    if trials.dtype.kind not in "iu" or trials.size == 0 or trials.min() < 1:
        raise InvalidInputError.of("n_trials", "range", "hold integers of at least 1", n_trials)
    n = trials.astype(np.float64)
    (mu, variance), (other_mu, other_variance) = (
        _expected_moments(_check_one(name, v), n) for name, v in (("p", p), ("other", other))
    )
    return np.asarray(np.abs(mu - other_mu) / np.sqrt(variance + other_variance))


def trials_until_z(p: npt.ArrayLike, other: npt.ArrayLike, z: float) -> int | None:
    """Return the smallest N at which two mimics are expected to reach `z`.

    Parameters
    ----------
    p, other : array, shape (M,) and (M',)
        Probability of a correct trial on each question, in [0, 1].
    z : float
        At least 0: 1.645 for a one-sided confidence of .95, 1.96 for .975.

    Returns
    -------
    int or None
        None where no N up to 100,000 suffices, as for two equal true scores.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> a, b = mimics_with_means([0.6080, 0.6213], 30)
    >>> trials_until_z(a, b, 1.645), trials_until_z(a, b, 1.96), trials_until_z(a, a, 1.645)
    (164, 232, None)
    """
    threshold = check_non_negative("z", z)
    n = np.arange(1, 100_001)
    reached = expected_z(p, other, n) >= threshold
    return int(n[reached.argmax()]) if reached.any() else None


def _quantiles(u: FloatArray, s: float, m: FloatArray) -> FloatArray:
    """Return the quantiles u of Beta(s·m, s(1−m)) for each m, (L, M)."""
    m = m[:, None]
    return beta_quantile(s * m, s * (1.0 - m), u)


def _expected_moments(p: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return E μ and E σ² after each number of trials in n."""
    # both sums over questions need only Σ p and Σ p q
    mean, product = p.mean(), (p * (1.0 - p)).sum()
    mu = (1.0 + n * mean) / (n + 2.0)
    # Σ (n p + 1)(n q + 1) − n p q = (n² − n) Σ p q + M (n + 1), since p + q = 1
    top = (n * n - n) * product + p.size * (n + 1.0)
    return mu, top / (np.square(n + 2.0) * (n + 3.0) * p.size**2)


def _check_p(name: str, values: npt.ArrayLike) -> FloatArray:
    """Return probabilities of at least one dimension."""
    p = numeric(name, values).astype(np.float64)
    if p.ndim == 0 or p.size == 0:
        rule = "hold a probability for each question"
        raise InvalidInputError.of(name, "shape", rule, f"{p.shape}")
    if not ((p >= 0.0) & (p <= 1.0)).all():
        bad = p[~((p >= 0.0) & (p <= 1.0))]
        raise InvalidInputError.of(name, "range", "hold probabilities in [0, 1]", bad[0].item())
    return p


def _check_beta(a: npt.ArrayLike, b: npt.ArrayLike, least: float) -> tuple[FloatArray, FloatArray]:
    """Return the Beta parameters of L models, both (L,) and above `least`."""
    first, second = (numeric(name, v).astype(np.float64) for name, v in (("a", a), ("b", b)))
    if first.ndim != 1 or first.size == 0:
        got = f"shape {first.shape}"
        raise InvalidInputError.of("a", "shape", "be 1-D, one entry per model", got)
    if second.shape != first.shape:
        rule = f"have the shape of a, {first.shape}"
        raise InvalidInputError.of("b", "shape", rule, second.shape)
    for name, values in (("a", first), ("b", second)):
        if not (np.isfinite(values) & (values > least)).all():
            rule = f"hold finite numbers above {least:g}"
            raise InvalidInputError.of(name, "range", rule, values.tolist())
    return first, second


def _check_one(name: str, values: npt.ArrayLike) -> FloatArray:
    """Return the probabilities of one model."""
    p = _check_p(name, values)
    if p.ndim != 1:
        rule = "be 1-D, one entry per question"
        raise InvalidInputError.of(name, "shape", rule, f"shape {p.shape}")
    return p


#: Replicates worked on at a time, and the questions of all models in them.
_REPLICATES, _HELD = 500, 10_000_000
#: All pairs of models are compared.
_MOST_MODELS = 1000

#: Means of the eight original models [Hariri 2026, §2.8], and the strength a + b of their Betas.
ORIGINAL_MEANS = (0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487)
_ORIGINAL_STRENGTH = 15.0


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
    means : tuple of float
        The scores of the L old versions.
    n_questions : int
        M.
    replicates, seed : int
        Their number and the seed they come from.
    """

    n_prior: tuple[int, ...]
    n_trials: tuple[int, ...]
    tau: FloatArray
    error: FloatArray
    tau_update: float
    changed: float
    means: tuple[float, ...]
    n_questions: int
    replicates: int
    seed: int


def prior_study(
    n_prior: Sequence[int] = (0, 1, 2, 4, 8, 16),
    n_trials: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    *,
    means: Sequence[float] = ORIGINAL_MEANS,
    n_questions: int = 30,
    replicates: int = 2000,
    seed: int = 0,
) -> PriorStudy:
    """Rank updated models with and without trials of their old versions [Hariri 2026, Fig. 2].

    The old versions are fixed: model i = 1..8 has 30 probabilities as from Beta(i + 3, 12 − i),
    with the mean that the paper states. In each replicate every model gets a new version by
    :func:`update_mimics`. D trials of the old version become R0, N of the new one R, and the
    ranking by Bayes@N (λ = 1) is held against the true ranking of the new versions. For L models
    other than eight, i runs evenly from 1 to 8.

    With 30,000 replicates the mean τ of the old and the new ranking is .883, and 86.6% of the
    rankings change; the paper has .88 and about 86%. The paper does not print the 30
    probabilities themselves; here they are the quantiles of Beta distributions of strength 15.
    Their sums decide the ranking, so their means matter far more than their shape.

    Parameters
    ----------
    n_prior, n_trials : sequence of int
        The values of D (at least 0; 0 must be among them) and of N (at least 1), ascending.
    means : sequence of float
        The scores of the 2 to 1,000 old versions, strictly between 0 and 1.
    n_questions : int
        M, from 1 to 10⁷ (fewer for many models).
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
    depths = check_rising("n_prior", n_prior, "be one or more ascending integers", 0)
    if depths[0] != 0:
        raise InvalidInputError.of("n_prior", "range", "begin with 0, to compare with", depths)
    lengths = check_rising("n_trials", n_trials, "be one or more ascending integers", 1)
    replicates, seed = check_size("replicates", replicates, 2), check_seed(seed)
    old = mimics_with_means(means, n_questions, strength=_ORIGINAL_STRENGTH)
    n_models = old.shape[0]
    if not 2 <= n_models <= _MOST_MODELS:
        rule = f"be those of 2 to {_MOST_MODELS:,} models"
        raise InvalidInputError.of("means", "range", rule, n_models)
    old_means = np.array(means, dtype=np.float64)
    rng = np.random.default_rng(seed)
    i = np.linspace(1.0, 8.0, n_models)
    shape = (len(depths), len(lengths))
    total, square, defined, gain, gain_square = (np.zeros(shape) for _ in range(5))
    agreement, changed = 0.0, 0
    most = min(_REPLICATES, _HELD // (n_models * n_questions))
    for part in blocks(replicates, 1, most):
        size = part.stop - part.start
        new = _updates(i + 3.0, 12.0 - i, (size, n_models, n_questions), rng)
        truth = new.mean(axis=2)
        update = kendall_tau_b(np.broadcast_to(old_means, truth.shape), truth)
        agreement += float(update.sum())
        changed += int((update < 1.0).sum())
        prior = _successes(np.broadcast_to(old, new.shape), depths, rng)
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
        n_prior=tuple(depths),
        n_trials=tuple(lengths),
        tau=read_only(mean, np.float64),
        error=read_only(error, np.float64),
        tau_update=agreement / replicates,
        changed=changed / replicates,
        means=tuple(old_means.tolist()),
        n_questions=n_questions,
        replicates=replicates,
        seed=seed,
    )


def _successes(
    p: FloatArray, sizes: Sequence[int], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Count successes over all questions after each number of trials, (len(sizes), B, L)."""
    steps = np.diff(np.array([0, *sizes]))
    return np.cumsum([rng.binomial(step, p).sum(axis=2) for step in steps], axis=0)
