"""The rule that stops at a decision, and what repeated looks do to its error rate.

What follows speaks of trials: the questions stay the same and only the answers vary (scope
"benchmark"). Between two equal models, z ≥ 1.645 (the paper's ρ ≥ .95, whichever model it
favours) names a winner in 10 of 100 runs that look once. Looking after each of 64 trials, a
normal random walk would get a winner in 55 of 100 runs, and in 34 with z ≥ 1.96. Simulated with
bayes@N on 30 questions it is 24 to 48, and 12 to 29: the uniform prior makes z smaller,
most of all on hard questions. hbayes@N, whose z is not made smaller, comes up to theory. A
correction with planned looks keeps the rate at 1 − confidence over the whole run: 1.5 to 5.1
of 100 for confidence .95 with bayes@N, 3.6 to 4.6 with hbayes@N.
``examples/stopping_error_rates.py`` makes the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from scipy import optimize, special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.comparison.difference import joined_notes
from lm_eval_bayes.stats.comparison.shared_questions import separation
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.ranking.rank import check_confidence, check_leaderboard
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.sequential.stopping_rules import StopVerdict, check_look, check_looks
from lm_eval_bayes.stats.validation import FloatArray, check_count, check_option

Spending: TypeAlias = Literal["obrien-fleming", "pocock"]

SPENDINGS: tuple[Spending, ...] = ("obrien-fleming", "pocock")
#: An error smaller than this is not spent at a look but kept for the next.
_LEAST = 1e-9
#: Nodes between the boundaries: at the least, and in one Gauss–Legendre panel.
_NODES, _PER_PANEL = 160, 16

Correction: TypeAlias = Literal["none", "obrien-fleming", "pocock"]

CORRECTIONS: tuple[Correction, ...] = ("none", *SPENDINGS)
#: From so many looks on, the rate of a naive rule is given as "at least".
_MANY = 256
#: Corrections have been seen to fail hbayes@N on so many questions or planned trials and fewer.
FEW_QUESTIONS, FEW_TRIALS = 10, 16


@dataclass(frozen=True)
class DecisionReached:
    """Stop once one of two models is better beyond doubt.

    z = |μ − μ'| / sqrt(σ² + σ'²) [Hariri 2026, §2.5] is held against a threshold. Without a
    correction that is Φ⁻¹(confidence), meant for one look and one direction: equal models
    then get a winner in 2(1 − confidence) of the runs at the first look already, and in more
    with each further one (:meth:`false_decision_rate`). With a correction, the looks are
    planned beforehand and the thresholds computed so that equal models get a winner, in
    either direction, in at most 1 − confidence of the runs, all looks together.
    "obrien-fleming" is strict early and all but free at the last look; "pocock" is about as
    strict at every look and stops earlier where the difference is large.

    That computation takes z for a normal random walk over the trials of fixed questions. The
    uniform prior of bayes@N errs on the safe side of it: its z is smaller, by a factor of
    about N/(N + 2) for few trials. That of hbayes@N is not, and with one trial a question it
    rests on the prior alone, so a corrected rule waits for `min_trials`.

    Where the corrections hold, by simulation of confidence .95 (a rate of 5%) with looks at 4, 8,
    16, 32 and 64 trials or at all from 4 to 64: bayes@N keeps to 5.6% on any number of questions
    with "obrien-fleming", and to 5.8% with "pocock" but for a single question (7.5%). hbayes@N
    keeps to 5% on 20 questions or more. **On ten questions or fewer hbayes@N does not keep its
    rate**: it comes to 7% with "obrien-fleming" and 10% with "pocock". **Nor does it where no more
    than 16 trials are planned**: 10% on three questions, 8% on 30. The verdict's `note` says so
    whenever a rule is used like that.

    In scope "population", where there is no correction, z is that of `compare`: the questions
    are paired by their ids, or by position where neither model has ids. Where the two
    posteriors do not have the same questions they are taken as independent, and the `note` says
    so.

    Parameters
    ----------
    confidence : float
        In [0.5, 1).
    correction : {"none", "obrien-fleming", "pocock"}
        How to pay for looking more than once.
    looks : iterable of int, optional
        The numbers of trials a question at which to look, rising, e.g. ``range(1, 65)``.
        Needed with a correction; without one, left out, every look counts.
    min_trials : int, optional
        No decision before so many trials a question; left out, 4 with a correction and 1
        without. Planned looks before that are not paid for.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or a correction comes without looks.

    Examples
    --------
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
    >>> a, b = ([[3, 5], [1, 7], [2, 6]], [[5, 3], [4, 4], [4, 4]])
    >>> posteriors = {m: bayes_at_n(Outcomes.from_counts(c)) for m, c in (("a", a), ("b", b))}
    >>> DecisionReached(0.95).look(8, posteriors).reason
    'z = 2 is at least 1.645: "a" is better'
    >>> careful = DecisionReached(0.95, correction="obrien-fleming", looks=(8, 16, 32))
    >>> careful.look(8, posteriors).reason
    'z = 2 is below 4.333: no decision'
    >>> round(DecisionReached(0.95).false_decision_rate(range(1, 65)), 2)
    0.55
    >>> round(careful.false_decision_rate(careful.looks), 3)
    0.05
    """

    confidence: float = 0.95
    correction: Correction = "none"
    looks: tuple[int, ...] | None = None
    min_trials: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", check_confidence(self.confidence))
        check_option("correction", self.correction, CORRECTIONS)
        corrected = self.correction != "none"
        least = (4 if corrected else 1) if self.min_trials is None else self.min_trials
        object.__setattr__(self, "min_trials", check_count("min_trials", least, 1))
        if self.looks is not None:
            planned = tuple(n for n in check_looks(self.looks) if n >= least)
            if not planned:
                rule = f"name a look at {least} trials (`min_trials`) or more"
                raise InvalidInputError.of("looks", rule, self.looks)
            object.__setattr__(self, "looks", planned)
        elif corrected:
            rule = "name the planned looks (trials a question) that the correction pays for"
            raise InvalidInputError.of("looks", rule, self.looks)

    def threshold(self, trials: int) -> float | None:
        """Return the z at which this rule stops after `trials` trials, None where it is blind.

        Examples
        --------
        >>> rule = DecisionReached(0.95, correction="pocock", looks=(10, 20))
        >>> [rule.threshold(n) for n in (9, 11)]
        [None, None]
        >>> [round(rule.threshold(n), 3) for n in (10, 20)]
        [2.157, 2.201]
        """
        trials = check_count("trials", trials, 1)
        if self.looks is not None and trials not in self.looks:
            return None
        if trials < (self.min_trials or 1):
            return None
        if self.correction == "none" or self.looks is None:
            return float(special.ndtri(self.confidence))
        shares = tuple(n / self.looks[-1] for n in self.looks)
        limits = boundaries(shares, 1.0 - self.confidence, self.correction)
        return limits[self.looks.index(trials)]

    def false_decision_rate(self, looks: Iterable[int]) -> float:
        """Return how often equal models would get a winner if looked at so often.

        By recursive integration for a normal random walk over the trials of fixed questions.

        Parameters
        ----------
        looks : iterable of int
            Numbers of trials a question, rising; those that the rule is blind at are left out.

        Raises
        ------
        InvalidInputError
            If `looks` is no such list.
        """
        checked = check_looks(looks)
        limits = {n: self.threshold(n) for n in checked}
        seen = [(n, limit) for n, limit in limits.items() if limit is not None]
        shares = tuple(n / checked[-1] for n, _ in seen)
        return crossing_probability(shares, tuple(limit for _, limit in seen))

    def look(self, trials: int, posteriors: Mapping[str, Posterior]) -> StopVerdict:
        """Judge the posteriors of two models after `trials` trials a question.

        Raises
        ------
        InvalidInputError
            If there are not two comparable posteriors, a corrected rule gets posteriors of
            scope "population", or `trials` is no count or not what they rest on.
        """
        trials, names = check_count("trials", trials, 1), check_leaderboard(posteriors)
        if len(names) != 2:
            raise InvalidInputError.of("posteriors", "be those of two models", len(names))
        check_look(trials, posteriors)
        a, b = (posteriors[name] for name in names)
        if self.correction != "none" and a.scope != "benchmark":
            rule = 'be of scope "benchmark" (a correction speaks of trials of fixed questions)'
            raise InvalidInputError.of("posteriors", rule, a.scope)
        gap = separation(a, b)
        z, threshold = gap.z, self.threshold(trials)
        rule = "decision reached"
        if threshold is None:
            reason = f"{trials} trials are not one of the planned looks"
            return StopVerdict(False, rule, reason, trials)
        validity = self._validity(a)
        if z == 0.0 or z < threshold:
            reason = f"z = {z:.3g} is below {threshold:.4g}: no decision"
            note = joined_notes([gap.note, validity])
            return StopVerdict(False, rule, reason, trials, z, threshold, note=note)
        winner = names[0] if gap.difference > 0.0 else names[1]
        reason = f'z = {z:.3g} is at least {threshold:.4g}: "{winner}" is better'
        # one does not promise a rate and take it back
        note = joined_notes([validity or self._note(trials, a.scope), gap.note])
        return StopVerdict(True, rule, reason, trials, z, threshold, winner, note)

    def _validity(self, posterior: Posterior) -> str | None:
        """Say where a correction does not keep what it promises."""
        n_questions = posterior.per_question.mu.size
        if self.correction == "none" or self.looks is None or posterior.learned is None:
            return None
        if n_questions > FEW_QUESTIONS and self.looks[-1] > FEW_TRIALS:
            return None
        return (
            f"{posterior.quantity} does not keep to the rate of {1.0 - self.confidence:.3g} on "
            f"{FEW_QUESTIONS} questions or fewer, nor where {FEW_TRIALS} trials or fewer are "
            f"planned (here {n_questions} questions, {self.looks[-1]} trials): simulated for a "
            "rate of 0.05, equal models got a winner in up to 0.1 of such runs"
        )

    def _note(self, trials: int, scope: Scope) -> str:
        """Say how often a decision like this one is false."""
        if self.correction != "none" and self.looks is not None:
            return (
                f"equal models get a winner in at most {1.0 - self.confidence:.3g} of such runs, "
                f"all {len(self.looks)} planned looks together"
            )
        planned = range(1, trials + 1) if self.looks is None else self.looks
        looks = [n for n in planned if n <= trials]
        once, rate = self.false_decision_rate([trials]), self.false_decision_rate(looks[:_MANY])
        note = f"equal models get a winner in {once:.3g} of the runs that look once, and in "
        if scope == "population":
            return (
                f"{note}more of those that have looked {len(looks)} times, though in fewer than "
                "on fixed questions: every look is at the same sample of questions"
            )
        prefix = "at least " if len(looks) > _MANY else ""
        return f"{note}{prefix}{rate:.3g} of those that have looked {len(looks)} times"


def spent(t: float, error: float, spending: Spending) -> float:
    """Return the error rate that may be used up when a share t of the trials is done.

    Two-sided, error/2 for each side. "obrien-fleming": 2·(2 − 2Φ(Φ⁻¹(1 − error/4)/√t)),
    next to nothing early. "pocock": error·log(1 + (e − 1)t), nearly even [Lan & DeMets 1983].

    Examples
    --------
    >>> [round(spent(t, 0.05, "obrien-fleming"), 5) for t in (0.2, 0.5, 1.0)]
    [0.0, 0.00305, 0.05]
    >>> [round(spent(t, 0.05, "pocock"), 5) for t in (0.2, 0.5, 1.0)]
    [0.01477, 0.03101, 0.05]
    """
    if spending == "pocock":
        return error * float(np.log1p((np.e - 1.0) * t))
    return 4.0 * float(special.ndtr(special.ndtri(0.25 * error) / np.sqrt(t)))


@lru_cache(maxsize=64)
def boundaries(shares: tuple[float, ...], error: float, spending: Spending) -> tuple[float, ...]:
    """Return the |z| at which to stop, look by look.

    Parameters
    ----------
    shares : tuple of float
        The shares of the planned trials at which there is a look, rising, at most 1.
    error : float
        In (0, 1): the probability that equal models ever cross, over all looks.
    spending : {"obrien-fleming", "pocock"}
        How the error is spread over the run.

    Returns
    -------
    tuple of float
        ∞ where a look comes so early that nothing can be decided at it.

    Examples
    --------
    Five even looks, the standard example of the clinical literature:

    >>> [round(c, 2) for c in boundaries((0.2, 0.4, 0.6, 0.8, 1.0), 0.05, "obrien-fleming")]
    [4.88, 3.36, 2.68, 2.29, 2.03]
    """
    walk = _Walk()
    found: list[float] = []
    used = 0.0
    for share in shares:
        left = spent(share, error, spending) - used
        limit = walk.boundary(share, left) if left > _LEAST else np.inf
        found.append(limit)
        used += walk.step(share, limit)
    return tuple(found)


def crossing_probability(shares: tuple[float, ...], limits: tuple[float, ...]) -> float:
    """Return the probability that equal models' |z| reaches a limit at one of the looks.

    Parameters
    ----------
    shares : tuple of float
        The shares of the planned trials at which there is a look, rising, at most 1.
    limits : tuple of float
        The |z| at which to stop, one a look.

    Examples
    --------
    z looked at once at 1.96 errs in 5 of 100; at five even looks, in 14:

    >>> round(crossing_probability((1.0,), (1.96,)), 3)
    0.05
    >>> round(crossing_probability((0.2, 0.4, 0.6, 0.8, 1.0), (1.96,) * 5), 3)
    0.142
    """
    walk = _Walk()
    return sum(walk.step(share, limit) for share, limit in zip(shares, limits, strict=True))


class _Walk:
    """Brownian motion that stops where it crosses: the mass and place of what goes on."""

    def __init__(self) -> None:
        self.share = 0.0
        # all mass at 0, before the first look
        self.place: FloatArray = np.zeros(1)
        self.mass: FloatArray = np.ones(1)

    def crossing(self, share: float, limit: float) -> float:
        """Return the mass that is at or beyond `limit` at the look `share`."""
        spread = np.sqrt(share - self.share)
        edge = limit * np.sqrt(share)
        beyond = special.ndtr((self.place - edge) / spread)
        beyond += special.ndtr((-self.place - edge) / spread)
        return float((self.mass * beyond).sum())

    def boundary(self, share: float, error: float) -> float:
        """Return the limit at which a mass of `error` crosses."""
        if self.crossing(share, 0.0) <= error:
            return 0.0
        return float(
            optimize.brentq(lambda c: self.crossing(share, c) - error, 0.0, 40.0, xtol=1e-10)
        )

    def step(self, share: float, limit: float) -> float:
        """Go on to the look `share`, stop what crosses, and return its mass."""
        crossed = 0.0 if np.isinf(limit) else self.crossing(share, limit)
        spread = np.sqrt(share - self.share)
        # beyond 9 standard deviations there is nothing left to follow
        edge = min(limit, 9.0) * np.sqrt(share)
        nodes, weights = _panels(max(_NODES, int(np.ceil(4.0 * edge / spread))))
        place = edge * nodes
        gaps = (place[:, None] - self.place) / spread
        density = np.exp(-0.5 * gaps**2) @ self.mass / (spread * np.sqrt(2.0 * np.pi))
        self.share, self.place, self.mass = share, place, edge * weights * density
        return crossed


def _panels(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return at least `n_nodes` nodes and weights on [−1, 1], Gauss–Legendre panel by panel."""
    nodes, weights = np.polynomial.legendre.leggauss(_PER_PANEL)
    n_panels = -(-n_nodes // _PER_PANEL)
    middles = (2.0 * np.arange(n_panels) + 1.0) / n_panels - 1.0
    places = middles[:, None] + nodes / n_panels
    return places.ravel(), np.tile(weights / n_panels, n_panels)
