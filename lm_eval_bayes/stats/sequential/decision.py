"""The rule that stops at a decision, and the effect of interim analyses on its error rate.

The error rates here are over trials: the questions are fixed and only the answers vary (scope
"benchmark"). Between two equal models, z ≥ 1.645 (the paper's ρ ≥ .95, in either direction)
gives a winner in 10% of the runs with one analysis. With an analysis after each of 64 trials, a
normal random walk gives a winner in 55% of the runs, and in 34% with z ≥ 1.96, which the rule
without a correction asks for. In simulations of
bayes@N on 30 questions the rates are 24 to 48%, and 12 to 29%: the uniform prior makes z
smaller, most of all on hard questions. The z of hbayes@N is not shrunk, and its rates agree with
the theory. A correction with planned analyses keeps the rate over the run at 1 − confidence: 1.5
to 5.1% for confidence .95 with bayes@N, 3.6 to 4.6% with hbayes@N.

Between two equal models the difference after N trials per question is, approximately, a random
walk observed at N, so that z behaves like B(t)/√t with B Brownian motion and t = N/N_max the
share of the planned trials. The probability that a boundary is crossed is computed by recursive
integration over the paths that have not crossed yet (Armitage, McPherson & Rowe 1969); an
alpha-spending function gives the part of the error rate that may be used by t (Lan & DeMets 1983).

The anytime correction has no horizon. Mixed over λ ~ N(0, 1/ρ), the martingale
exp(λ B(n) − λ² n/2) is sqrt(ρ/(n + ρ)) exp(B(n)²/(2(n + ρ))), and by Ville's inequality it ever
reaches 1/error with probability at most `error` (Robbins 1970; Howard, Ramdas, McAuliffe & Sekhon
2021, eq. 14). Solved for |B(n)|/√n this is the normal mixture boundary.

``examples/stopping_error_rates.py`` makes the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from scipy import optimize, special

from lm_eval_bayes._util.validation import check_confidence, check_count, check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.comparison.difference import separation_in_sd
from lm_eval_bayes.stats.comparison.shared_questions import pair_posterior
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.ranking.rank import compare_in_order
from lm_eval_bayes.stats.results import Posterior, check_leaderboard, joined_notes
from lm_eval_bayes.stats.sequential.stopping_rules import (
    StopVerdict,
    check_analyses,
    check_analysis,
)

Spending: TypeAlias = Literal["obrien-fleming", "pocock"]

#: The alpha that may be spent at a share t of the trials, for an error rate; see `alpha_spent`.
_SPENDINGS: Mapping[Spending, Callable[[float, float], float]] = {
    "obrien-fleming": lambda t, error: 4.0 * special.ndtr(special.ndtri(0.25 * error) / np.sqrt(t)),
    "pocock": lambda t, error: error * np.log1p((np.e - 1.0) * t),
}
#: A part of alpha smaller than this is not spent at an analysis but left for the next one.
_LEAST = 1e-9
#: ρ of the normal mixture boundary, in trials per question. For an error rate of 5% the boundary
#: is lowest at about 8ρ trials.
MIXTURE_TRIALS = 8.0
#: Nodes between the boundaries: at the least, and in one Gauss–Legendre panel.
_NODES, _PER_PANEL = 160, 16

Correction: TypeAlias = Literal["none", "obrien-fleming", "pocock", "anytime"]

#: The default of `min_trials` by correction.
LEAST_TRIALS: Mapping[Correction, int] = {
    "none": 1,
    "obrien-fleming": 4,
    "pocock": 4,
    "anytime": 2,
}
CORRECTIONS: tuple[Correction, ...] = tuple(LEAST_TRIALS)
#: The number of analyses from which the rate of an uncorrected rule is given as "at least".
_MANY = 256
#: In simulations corrections fail for hbayes@N on this many questions or planned trials, or fewer.
FEW_QUESTIONS, FEW_TRIALS = 10, 16


@dataclass(frozen=True)
class DecisionReached:
    """Stop once one of two models is better with the required confidence.

    Without a correction that is when they are distinguishable, as in `rank` and `compare`: with
    equal models there is then a winner in 1 − confidence of the runs at the first analysis, and in
    more with each further one (:meth:`false_decision_rate`). With a correction
    z = |μ − μ'| / sqrt(σ² + σ'²) [Hariri 2026, §2.5] is compared with thresholds that are such
    that with equal models there is a winner, in either direction, in at most 1 − confidence of the
    runs, over all analyses. They also have to be distinguishable, which alone decides where one
    analysis is planned. For "obrien-fleming" and "pocock" the analyses are planned in
    advance. "obrien-fleming" is strict early and costs little at the last analysis; "pocock" is
    about as strict at every analysis and stops earlier where the difference is large. "anytime"
    needs no plan: analyses may be made whenever one likes, and a run may be extended after it
    was seen. Its threshold is a confidence sequence's (:func:`mixture_boundary`).

    The computation treats z as a normal random walk over the trials of fixed questions. With the
    uniform prior of bayes@N this is conservative: its z is smaller, by a factor of about
    N/(N + 2) for few trials. That of hbayes@N is not, and with one trial per question it depends
    on the prior alone, so a corrected rule waits for `min_trials`.

    **On ten questions or fewer, and where at most 16 trials are planned, hbayes@N exceeds the
    rate** of a planned correction. **bayes@N keeps that of "anytime" for two models with equal
    numbers of trials only**: its uniform prior moves scores with fewer trials further towards the
    middle. The verdict's `note` warns of each. ``examples/anytime_error_rates.py`` and
    ``examples/stopping_error_rates.py`` simulate the rates.

    In scope "population", for which there is no correction, z is that of `compare`: the questions
    are paired by their ids, or by position where neither model has ids. Posteriors of different
    questions are treated as independent, and the `note` says so.

    Parameters
    ----------
    confidence : float
        In [0.5, 1).
    correction : {"none", "obrien-fleming", "pocock", "anytime"}
        How the error rate of several analyses is controlled.
    analyses : iterable of int, optional
        The numbers of trials per question of the planned analyses, increasing, e.g.
        ``range(1, 65)``. Required with "obrien-fleming" and "pocock"; otherwise the default is
        any number.
    min_trials : int, optional
        The least number of trials per question for a decision; the default is 4 with
        "obrien-fleming" and "pocock", 2 with "anytime" and 1 without a correction. No alpha is
        spent on planned analyses before it.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or a correction that plans is given without analyses.

    Examples
    --------
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.uniform_prior import bayes_at_n
    >>> a, b = ([[3, 5], [1, 7], [2, 6]], [[5, 3], [4, 4], [4, 4]])
    >>> posteriors = {m: bayes_at_n(Outcomes.from_counts(c)) for m, c in (("a", a), ("b", b))}
    >>> DecisionReached(0.95).evaluate(8, posteriors).reason
    'z = 2 is below 2.06: no decision'
    >>> careful = DecisionReached(0.95, correction="obrien-fleming", analyses=(8, 16, 32))
    >>> careful.evaluate(8, posteriors).reason
    'z = 2 is below 4.333: no decision'
    >>> round(DecisionReached(0.95).false_decision_rate(range(1, 65)), 2)
    0.34
    >>> round(careful.false_decision_rate(careful.analyses), 3)
    0.05
    >>> unplanned = DecisionReached(0.95, correction="anytime")
    >>> unplanned.evaluate(8, posteriors).reason
    'z = 2 is below 3.656: no decision'
    >>> [round(unplanned.false_decision_rate(range(1, n + 1)), 3) for n in (64, 1000)]
    [0.014, 0.033]
    """

    confidence: float = 0.95
    correction: Correction = "none"
    analyses: tuple[int, ...] | None = None
    min_trials: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", check_confidence(self.confidence))
        check_option("correction", self.correction, CORRECTIONS)
        least = LEAST_TRIALS[self.correction] if self.min_trials is None else self.min_trials
        object.__setattr__(self, "min_trials", check_count("min_trials", least, 1))
        if self.analyses is not None:
            planned = tuple(n for n in check_analyses(self.analyses) if n >= least)
            if not planned:
                rule = f"include an analysis at {least} trials (`min_trials`) or more"
                raise InvalidInputError.of("analyses", "range", rule, self.analyses)
            object.__setattr__(self, "analyses", planned)
        elif self.correction in _SPENDINGS:
            rule = "name the planned analyses (trials per question) of the correction"
            raise InvalidInputError.of("analyses", "missing", rule, self.analyses)

    def threshold(self, trials: int) -> float | None:
        """Return the z at which this rule stops after `trials` trials; None without an analysis.

        Examples
        --------
        >>> rule = DecisionReached(0.95, correction="pocock", analyses=(10, 20))
        >>> [rule.threshold(n) for n in (9, 11)]
        [None, None]
        >>> [round(rule.threshold(n), 3) for n in (10, 20)]
        [2.157, 2.201]
        """
        trials = check_count("trials", trials, 1)
        unplanned = self.analyses is not None and trials not in self.analyses
        if unplanned or trials < (self.min_trials or 1):
            return None
        if self.correction == "anytime":
            return mixture_boundary(trials, 1.0 - self.confidence)
        if self.correction == "none" or self.analyses is None:
            return float(special.ndtri(0.5 + 0.5 * self.confidence))
        shares = tuple(n / self.analyses[-1] for n in self.analyses)
        limits = boundaries(shares, 1.0 - self.confidence, self.correction)
        return limits[self.analyses.index(trials)]

    def false_decision_rate(self, analyses: Iterable[int]) -> float:
        """Return the probability that equal models get a winner at one of these analyses.

        By recursive integration for a normal random walk over the trials of fixed questions.

        Parameters
        ----------
        analyses : iterable of int
            Numbers of trials per question, increasing; those that are not planned are skipped.

        Raises
        ------
        InvalidInputError
            If `analyses` is no such list.
        """
        checked = check_analyses(analyses)
        limits = {n / checked[-1]: self.threshold(n) for n in checked}
        planned = {share: limit for share, limit in limits.items() if limit is not None}
        return crossing_probability(tuple(planned), tuple(planned.values()))

    def evaluate(self, trials: int, posteriors: Mapping[str, Posterior]) -> StopVerdict:
        """Evaluate the posteriors of two models after `trials` trials per question.

        Raises
        ------
        InvalidInputError
            If there are not two comparable posteriors, a corrected rule gets posteriors of
            scope "population", or `trials` is no count or not what they rest on.
        """
        trials, names = check_count("trials", trials, 1), check_leaderboard(posteriors)
        if len(names) != 2:
            raise InvalidInputError.of("posteriors", "range", "be those of two models", len(names))
        check_analysis(trials, posteriors)
        a, b = (posteriors[name] for name in names)
        if self.correction != "none" and a.scope != "benchmark":
            rule = 'be of scope "benchmark" (a correction holds for trials of fixed questions)'
            raise InvalidInputError.of("posteriors", "unsupported", rule, a.scope)
        gap = pair_posterior(a, b)
        z, threshold = separation_in_sd(gap.mu, gap.sigma), self.threshold(trials)
        rule = "decision reached"
        if threshold is None:
            reason = f"{trials} trials are not one of the planned analyses"
            return StopVerdict(False, rule, reason, trials)
        decided = z >= threshold and z > 0.0
        analyses = 1 if self.analyses is None else len(self.analyses)
        is_single = self.correction == "none" or (self.correction in _SPENDINGS and analyses == 1)
        if decided or is_single:
            best_first = sorted((a, b), key=lambda side: side.mu, reverse=True)
            comparison = compare_in_order(best_first, self.confidence, seed=0)
            decided = bool(comparison.separated.any())
        if is_single:
            z, threshold = abs(float(comparison.z[0, 1])), comparison.critical_value
        on_data = gap.note if a.scope == "population" else None
        if decided:
            winner = names[0] if gap.mu > 0.0 else names[1]
            reason = f'z = {z:.3g} is at least {threshold:.4g}: "{winner}" is better'
        else:
            winner, reason = None, f"z = {z:.3g} is below {threshold:.4g}: no decision"
            if z > threshold:
                reason = "the models are not distinguishable: no decision"
        # no rate is stated where the correction does not hold
        on_rate = self.validity(a, b) or (self._note(trials, a.scope) if decided else None)
        note = joined_notes([on_rate, on_data])
        return StopVerdict(decided, rule, reason, trials, z, threshold, winner, note)

    def validity(self, a: Posterior, b: Posterior) -> str | None:
        """Return a warning where a correction does not control the error rate."""
        if self.correction == "none":
            return None
        if a.learned is None or b.learned is None:
            if a.n_trials == b.n_trials:
                return None
            return (
                f"{a.quantity} moves the scores of models with different numbers of trials by "
                "different amounts towards the middle, so the error rate can exceed "
                f"{1.0 - self.confidence:.3g}; hbayes@N does not"
            )
        n_questions = a.per_question.mu.size
        if self.correction == "anytime" or self.analyses is None:
            return None
        if n_questions > FEW_QUESTIONS and self.analyses[-1] > FEW_TRIALS:
            return None
        return (
            f"{a.quantity} exceeds the rate of {1.0 - self.confidence:.3g} on {FEW_QUESTIONS} "
            f"questions or fewer, and where {FEW_TRIALS} trials or fewer are planned"
        )

    def _note(self, trials: int, scope: Scope) -> str:
        """Return the false decision rate of a decision like this one, in words."""
        if self.correction != "none":
            over = "however many analyses there are"
            if self.correction != "anytime" and self.analyses is not None:
                over = f"over all {len(self.analyses)} planned analyses"
            return (
                f"equal models get a winner in at most {1.0 - self.confidence:.3g} of such runs, "
                + over
            )
        once = 1.0 - self.confidence
        if scope == "population":
            return f"equal models get a winner in {once:.3g} of the runs at each analysis"
        planned = range(1, trials + 1) if self.analyses is None else self.analyses
        analyses = [n for n in planned if n <= trials]
        rate = self.false_decision_rate(analyses[:_MANY])
        return (
            f"equal models get a winner in {once:.3g} of the runs with one analysis, and in "
            f"{'at least ' * (len(analyses) > _MANY)}{rate:.3g} of those with {len(analyses)}"
        )


def alpha_spent(t: float, error: float, spending: Spending) -> float:
    """Return the alpha that may be spent when a share t of the trials is done.

    Two-sided, error/2 for each side. "obrien-fleming": 2·(2 − 2Φ(Φ⁻¹(1 − error/4)/√t)),
    next to nothing early. "pocock": error·log(1 + (e − 1)t), nearly even [Lan & DeMets 1983].

    Examples
    --------
    >>> [round(alpha_spent(t, 0.05, "obrien-fleming"), 5) for t in (0.2, 0.5, 1.0)]
    [0.0, 0.00305, 0.05]
    >>> [round(alpha_spent(t, 0.05, "pocock"), 5) for t in (0.2, 0.5, 1.0)]
    [0.01477, 0.03101, 0.05]
    """
    return float(_SPENDINGS[spending](t, error))


def mixture_boundary(trials: int, error: float) -> float:
    """Return the |z| at which to stop after `trials` trials, whatever the other analyses are.

    sqrt((1 + ρ/n) log((1 + n/ρ)/error²)) [Howard et al. 2021, eq. 14, two-sided], ρ being
    `MIXTURE_TRIALS`. It rises like sqrt(log n), and for few trials like sqrt(ρ/n).

    Parameters
    ----------
    trials : int
        n, at least 1.
    error : float
        In (0, 1): a bound on the probability that equal models ever cross.

    Examples
    --------
    >>> [round(mixture_boundary(n, 0.05), 2) for n in (2, 4, 8, 16, 64, 256, 1024)]
    [5.57, 4.38, 3.66, 3.26, 3.04, 3.13, 3.31]
    """
    n, rho = float(trials), MIXTURE_TRIALS
    return float(np.sqrt((1.0 + rho / n) * np.log((1.0 + n / rho) / error**2)))


@lru_cache(maxsize=64)
def boundaries(shares: tuple[float, ...], error: float, spending: Spending) -> tuple[float, ...]:
    """Return the |z| at which to stop, analysis by analysis.

    Parameters
    ----------
    shares : tuple of float
        The shares of the planned trials of the analyses, increasing, at most 1.
    error : float
        In (0, 1): the probability that equal models ever cross, over all analyses.
    spending : {"obrien-fleming", "pocock"}
        How the error is spread over the run.

    Returns
    -------
    tuple of float
        ∞ where an analysis is too early for any decision.

    Examples
    --------
    Five equally spaced analyses, the standard example of the clinical literature:

    >>> [round(c, 2) for c in boundaries((0.2, 0.4, 0.6, 0.8, 1.0), 0.05, "obrien-fleming")]
    [4.88, 3.36, 2.68, 2.29, 2.03]
    """
    walk = _Walk()
    limits: list[float] = []
    used = 0.0
    for share in shares:
        left = alpha_spent(share, error, spending) - used
        limit = walk.boundary(share, left) if left > _LEAST else np.inf
        limits.append(limit)
        used += walk.step(share, limit)
    return tuple(limits)


def crossing_probability(shares: tuple[float, ...], limits: tuple[float, ...]) -> float:
    """Return the probability that equal models' |z| reaches a limit at one of the analyses.

    Parameters
    ----------
    shares : tuple of float
        The shares of the planned trials of the analyses, increasing, at most 1.
    limits : tuple of float
        The |z| at which to stop, one per analysis.

    Examples
    --------
    One analysis with the limit 1.96 has an error rate of 5%, five have 14%:

    >>> round(crossing_probability((1.0,), (1.96,)), 3)
    0.05
    >>> round(crossing_probability((0.2, 0.4, 0.6, 0.8, 1.0), (1.96,) * 5), 3)
    0.142
    """
    walk = _Walk()
    return sum(walk.step(share, limit) for share, limit in zip(shares, limits, strict=True))


class _Walk:
    """Brownian motion stopped at a boundary: the mass and the position of the paths that go on."""

    def __init__(self) -> None:
        self.share = 0.0
        # all mass at 0, before the first analysis
        self.position: FloatArray = np.zeros(1)
        self.mass: FloatArray = np.ones(1)

    def crossing(self, share: float, limit: float) -> float:
        """Return the mass that is at or beyond `limit` at the analysis `share`."""
        spread = np.sqrt(share - self.share)
        edge = limit * np.sqrt(share)
        beyond = special.ndtr((self.position - edge) / spread)
        beyond += special.ndtr((-self.position - edge) / spread)
        return float((self.mass * beyond).sum())

    def boundary(self, share: float, error: float) -> float:
        """Return the limit at which a mass of `error` crosses."""
        if self.crossing(share, 0.0) <= error:
            return 0.0
        root = optimize.brentq(lambda c: self.crossing(share, c) - error, 0.0, 40.0, xtol=1e-10)
        return float(root)

    def step(self, share: float, limit: float) -> float:
        """Go on to the analysis `share`, stop the paths that cross, and return their mass."""
        crossed = 0.0 if np.isinf(limit) else self.crossing(share, limit)
        spread = np.sqrt(share - self.share)
        # beyond 9 standard deviations there is nothing left to follow
        edge = min(limit, 9.0) * np.sqrt(share)
        nodes, weights = _panels(max(_NODES, int(np.ceil(4.0 * edge / spread))))
        position = edge * nodes
        gaps = (position[:, None] - self.position) / spread
        density = np.exp(-0.5 * gaps**2) @ self.mass / (spread * np.sqrt(2.0 * np.pi))
        self.share, self.position, self.mass = share, position, edge * weights * density
        return crossed


def _panels(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return at least `n_nodes` nodes and weights on [−1, 1], Gauss–Legendre panel by panel."""
    nodes, weights = np.polynomial.legendre.leggauss(_PER_PANEL)
    n_panels = -(-n_nodes // _PER_PANEL)
    middles = (2.0 * np.arange(n_panels) + 1.0) / n_panels - 1.0
    places = middles[:, None] + nodes / n_panels
    return places.ravel(), np.tile(weights / n_panels, n_panels)
