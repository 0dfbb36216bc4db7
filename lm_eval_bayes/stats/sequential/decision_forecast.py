"""How many further trials a decision rule with interim analyses needs.

`trials_needed` asks at which number of trials z is large enough, each number by itself. A run that
is analysed after every batch stops at the first analysis at which its rule decides, and its
thresholds are higher. Here every posterior predictive draw is a path of trials, analysed where
the rule says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.comparison.shared_questions import separation
from lm_eval_bayes.stats.ranking.rank import check_leaderboard
from lm_eval_bayes.stats.results import Posterior, check_posterior, joined_notes
from lm_eval_bayes.stats.sequential.decision import DecisionReached
from lm_eval_bayes.stats.sequential.predictive_draws import (
    DRAWS,
    PAIRED_WITH,
    PredictiveScore,
)
from lm_eval_bayes.stats.sequential.trials_needed import SHARES, TrialsForecast

#: The most analyses of a forecast.
MAX_ANALYSES = 2_000


def trials_to_decision(
    posterior: Posterior, other: Posterior, rule: DecisionReached
) -> TrialsForecast:
    """Forecast the further trials per question after which a rule decides between two models.

    The draws are from the posterior predictive distribution, as in `trials_needed`; both models
    get the same further trials. The forecast is the number of trials after which half of the
    draws were decided at one of the rule's analyses, with the central 90% of that number.

    Parameters
    ----------
    posterior, other : Posterior
        Of bayes@N or hbayes@N, of scope "benchmark", for the same questions.
    rule : DecisionReached
        With its `analyses`, the numbers of trials per question in all. Where the models'
        numbers of trials differ, analyses are counted from their rounded mean.

    Returns
    -------
    TrialsForecast
        Its `target` is the rule's threshold at the forecast number of trials, or at the last
        analysis where no forecast can be made; `max_trials` ends at the last analysis.

    Raises
    ------
    InvalidInputError
        If the rule names no analysis beyond the present trials or more than 2,000, the scope is
        "population", or another argument breaks its rule.

    Examples
    --------
    >>> from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.sequential.trials_needed import trials_needed
    >>> a, b = ([[3, 5], [6, 2], [4, 4]] * 10, [[4, 4], [6, 2], [5, 3]] * 10)
    >>> a, b = (bayes_at_n(Outcomes.from_counts(counts)) for counts in (a, b))
    >>> rule = DecisionReached(0.95, correction="pocock", analyses=range(4, 201, 4))
    >>> forecast = trials_to_decision(a, b, rule)
    >>> forecast.additional > trials_needed(a, z=1.645, other=b).additional
    True
    """
    if not isinstance(rule, DecisionReached):
        raise InvalidInputError.of("rule", "type", "be a DecisionReached", rule)
    sides = {"posterior": posterior, "other": other}
    check_leaderboard({name: check_posterior(name, side) for name, side in sides.items()})
    return forecast_decision(PredictiveScore.of(posterior), PredictiveScore.of(other), rule)


def forecast_decision(
    first: PredictiveScore, second: PredictiveScore, rule: DecisionReached
) -> TrialsForecast:
    """Forecast the trials after which a rule decides between two models; both are drawn."""
    posterior, other = first.posterior, second.posterior
    if posterior.scored or other.scored:
        rule_text = "be of right and wrong trials or of categories, which are forecast one by one"
        raise InvalidInputError.of("posterior", "unsupported", rule_text, "one of scores")
    if posterior.scope != "benchmark":
        rule_text = (
            'be of scope "benchmark" (a rule with analyses is for trials of fixed questions)'
        )
        raise InvalidInputError.of("posterior", "unsupported", rule_text, posterior.scope)
    present = round(float(np.mean([p.n_trials or 0.0 for p in (posterior, other)])))
    analyses = [n for n in rule.analyses or () if n > present]
    if not analyses or len(analyses) > MAX_ANALYSES:
        rule_text = f"name 1 to {MAX_ANALYSES:,} analyses beyond the {present} trials there are"
        raise InvalidInputError.of("rule", "range", rule_text, f"{len(analyses):,} analyses")
    gap = separation(posterior, other)
    z, now = gap.z, rule.threshold(present) if present else None
    needed: list[int | None] = [0, 0, 0]
    share, target = 1.0, now
    if now is None or z < now:
        decided = _shares_decided(first, second, rule, analyses, present)
        needed = [_first(analyses, decided, wanted, present) for wanted in SHARES]
        share = float(decided[-1])
        last = analyses[-1] if needed[1] is None else present + needed[1]
        target = rule.threshold(last)
    notes = [posterior.note, other.note, gap.note]
    if needed[1] is None:
        notes.append(
            f"Within {analyses[-1] - present} further trials per question only {share:.0%} of the "
            "predictive draws are decided."
        )
    low, middle, high = needed
    return TrialsForecast(
        goal="z",
        target=float(target or 0.0),
        current=z,
        trials=float(present),
        additional=middle,
        additional_low=low,
        additional_high=high,
        probability=share,
        max_trials=analyses[-1] - present,
        limit=None,
        level=None,
        scope=posterior.scope,
        note=joined_notes([*notes, rule.validity(posterior, other)]),
    )


def _shares_decided(
    first: PredictiveScore,
    second: PredictiveScore,
    rule: DecisionReached,
    analyses: Sequence[int],
    present: int,
) -> FloatArray:
    """Return the share of the predictive draws that are decided by each analysis."""
    steps = np.diff([present, *analyses]).tolist()
    rng = np.random.default_rng([first.posterior.distribution.seed, 4])
    other = PAIRED_WITH
    decided = np.zeros(DRAWS, dtype=np.bool_)
    shares = []
    paths = zip(analyses, first.path(steps, rng), second.path(steps, rng), strict=True)
    for n, (mu, sigma), (mu_other, sigma_other) in paths:
        threshold = rule.threshold(n)
        if threshold is not None:
            sd = np.hypot(sigma, sigma_other[other])
            decided |= np.abs(mu - mu_other[other]) > threshold * sd
        shares.append(decided.mean())
    return np.array(shares)


def _first(analyses: Sequence[int], decided: FloatArray, wanted: float, present: int) -> int | None:
    """Return the further trials at the first analysis by which a share of the draws is decided."""
    index = int(np.searchsorted(decided, wanted))
    return None if index == len(analyses) else analyses[index] - present
