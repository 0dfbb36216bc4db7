"""Rankings with ties and with the posterior probability of every rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import special

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.text import first_names
from lm_eval_bayes._util.validation import (
    check_confidence,
    check_option,
    check_seed,
    check_size,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, protect
from lm_eval_bayes.stats.comparison.difference import draw_variance
from lm_eval_bayes.stats.comparison.shared_questions import (
    UNPAIRED,
    SharedQuestions,
    pair_posterior,
)
from lm_eval_bayes.stats.intervals import IntervalSpec, Scope
from lm_eval_bayes.stats.ranking.shared_scores import (
    count_ranks,
    draw_paired,
    draw_scores,
)
from lm_eval_bayes.stats.ranking.simultaneous import (
    BoolArray,
    SimultaneousComparisons,
    compare_simultaneously,
    pair_errors,
)
from lm_eval_bayes.stats.results import Posterior, check_leaderboard, joined_notes
from lm_eval_bayes.stats.states import WeightedSum
from lm_eval_bayes.stats.tie_rules import (
    TIE_RULES,
    TieRule,
    best_first,
    distance_in_sd,
    separation_levels,
    separations,
    tie_groups,
)

#: Two means nearer than this share of the range of scores differ by rounding only.
_ROUNDING = 1e-12


#: The arrays of a `Ranking` that have one number per model, in the order of its rows.
MODEL_COLUMNS = (
    "mu",
    "sigma",
    "p_best",
    "expected_rank",
    "rank_low",
    "rank_high",
)


@dataclass(frozen=True, eq=False)
class Ranking(Record):
    """A ranking of L models, best first; every array follows `models`.

    Attributes
    ----------
    models : tuple of str
        The names, best first.
    ranks : array, shape (L,)
        Ranks from 1; the next rank after a tie is one more.
    mu, sigma : array, shape (L,)
        Posterior mean and sd of each model's score.
    z : array, shape (L, L)
        |μ − μ'| / sqrt(σ² + σ'²) of every two models [Hariri 2026, §2.5]; where `paired`, the
        z of `compare`, 0 where it favours the model with the lower μ.
    p_best : array, shape (L,)
        Posterior probability of being the best.
    expected_rank : array, shape (L,)
        Posterior mean of the rank.
    rank_low, rank_high : array, shape (L,)
        Simultaneous confidence sets for the ranks [Mogstad et al. 2024]: with probability
        `confidence` the true ranks of all models lie in them.
    simultaneous : SimultaneousComparisons
        The comparisons of all pairs behind these sets, whatever the rule of the ties.
    rank_distribution : array, shape (L, L)
        ``[i, r]``: probability that model i has rank r + 1; rows and columns sum to 1.
    p_greater : array, shape (L, L)
        ``[i, j]``: probability that model i scores more than model j; ½ on the diagonal.
    ties : str
        The rule by which `ranks` came about.
    confidence, threshold : float
        Two models tie where z < threshold = Φ⁻¹(confidence), one-sided; with ties
        "simultaneous" the threshold is the critical value of the first step, two-sided.
    quantity, scope : str
        What was ranked, and of which questions it speaks.
    draws, seed : int
        The joint draws behind the probabilities.
    mc_error : float
        The largest Monte-Carlo standard error among them; for rubrics an upper bound that
        includes the error of the particles that represent the learned priors.
    paired : bool
        Whether the models' questions were paired, which scope "population" asks for.
    note : str or None
        A warning about the ranking.
    """

    models: tuple[str, ...]
    ranks: FloatArray = field(metadata=NOT_IN_JSON)
    mu: FloatArray = field(metadata=NOT_IN_JSON)
    sigma: FloatArray = field(metadata=NOT_IN_JSON)
    z: FloatArray = field(repr=False)
    p_best: FloatArray = field(metadata=NOT_IN_JSON)
    expected_rank: FloatArray = field(metadata=NOT_IN_JSON)
    simultaneous: SimultaneousComparisons = field(repr=False)
    rank_distribution: FloatArray = field(repr=False)
    p_greater: FloatArray = field(repr=False)
    ties: TieRule
    confidence: float
    threshold: float
    quantity: str
    scope: Scope
    draws: int
    seed: int
    mc_error: float
    paired: bool = False
    n_clusters: int | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        protect(self)

    @property
    def rank_low(self) -> FloatArray:
        """Lower ends of the joint confidence sets for the ranks."""
        return self.simultaneous.rank_low

    @property
    def rank_high(self) -> FloatArray:
        """Their upper ends."""
        return self.simultaneous.rank_high

    @property
    def distinguishable(self) -> BoolArray:
        """``[i, j]``: whether models i and j are distinguishable, shape (L, L)."""
        better = self.simultaneous.separated
        return np.asarray(better | better.T)

    def rank_of(self, model: str) -> float:
        """Return the rank of one model.

        Raises
        ------
        InvalidInputError
            If no such model was ranked.
        """
        if not isinstance(model, str) or model not in self.models:
            rule = f"be one of {first_names(self.models, 8)}"
            raise InvalidInputError.of("model", "choice", rule, model)
        return float(self.ranks[self.models.index(model)])

    def rows(self) -> list[dict[str, Any]]:
        """Return the numbers of every model by name, best first: model, rank, mu, sigma, …."""
        columns = {"rank": self.ranks, **{name: getattr(self, name) for name in MODEL_COLUMNS}}
        return [
            {"model": model, **{name: float(column[i]) for name, column in columns.items()}}
            for i, model in enumerate(self.models)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; a z of two certain, different scores is None."""
        pairs = {"distinguishable": self.distinguishable.tolist()}
        return {**super().to_dict(), "models": self.rows(), **pairs}


def rank(
    posteriors: Mapping[str, Posterior],
    ties: TieRule = "simultaneous",
    confidence: float = 0.95,
    *,
    seed: int = 0,
    draws: int | None = None,
    tasks: Sequence[Mapping[str, Posterior]] | None = None,
) -> Ranking:
    """Rank models by posterior mean, with ties [Hariri 2026, §2.9, Table 1].

    By default ranks have a familywise guarantee. All pairs are compared at once by the largest
    |z| under errors drawn jointly for all pairs, step by step [Romano & Wolf 2005], and a model
    ranks one below the lowest-ranked model that is better than it. With probability `confidence`
    no pair is separated the wrong way, and at least r − 1 models are truly better than every
    model of rank r. Of two models, the interval of their difference with that level must
    exclude 0 too. Two models of different rank need not be separated from each other:
    the joint confidence sets for the ranks, which are given with every rule, say what is certain
    [Mogstad et al. 2024].

    By the paper's rule ("adjacent") neighbours tie where z = |μ − μ'| / sqrt(σ² + σ'²) is below
    Φ⁻¹(confidence), without a correction for their number. It chains: ten models, each barely
    below the last, can all share a first rank though the tenth is certainly worse than the first.
    With every rule the result has the posterior itself: the probability of every rank and of every
    A > B, from joint draws. Each model's own posterior takes large differences to be as plausible
    as small ones, so that between close models P(A > B) is too certain; see `shared_scores`.

    In scope "benchmark" the models' scores are independent given their trials. In scope
    "population" they are not where all models answered the same questions: a sample of hard
    questions lowers them all. There z and the draws are those of `compare`: a Bayesian
    bootstrap over the questions whose weights all models share. Questions are paired by
    their ids, by position where no model has ids; μ and σ stay each model's own. Posteriors
    of different questions are treated as independent, which gives more ties than necessary:
    `paired` is then False and the `note` says why. Simultaneous comparisons of models with fewer
    than two trials per question are paired in both scopes, see `Notes`.

    Parameters
    ----------
    posteriors : mapping of str to Posterior
        One per model, at least one: the same quantity, scope and range of scores, and in scope
        "benchmark" the same number of questions.
    ties : {"simultaneous", "adjacent", "none"}
        By simultaneous comparisons, by the paper's rule, or only for equal means.
    confidence : float
        In [0.5, 1). The confidence of the simultaneous comparisons and of the sets for the
        ranks; for the paper's rule one-sided: 0.95 asks for z >= 1.645.
    seed : int
        Seed of the draws.
    draws : int, optional
        Their number, 1,000 to 10⁷, for the probabilities; left out 20,000, or down to 4,000 by the
        size of the problem. The
        simultaneous comparisons have draws of their own, see `simultaneous.draws`.
    tasks : sequence of mapping of str to Posterior, optional
        The models' posteriors of every task, where `posteriors` are those of their means over
        tasks.

    Returns
    -------
    Ranking

    Raises
    ------
    InvalidInputError
        If there is no model, a mean or sd is not a finite number or an sd is negative (the
        model is named), the posteriors differ in what they are about, or another argument
        breaks its rule.

    Notes
    -----
    False separations among equal models that share question difficulty were simulated, see
    `examples/simultaneous_ranking.py`. With one trial per question chance and difficulty
    cannot be distinguished from one model's data; there the variance of a difference is that of
    the questions' differences, with Student's correction, in both scopes.

    Examples
    --------
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.uniform_prior import bayes_at_n
    >>> counts = {"a": [[1, 15], [3, 13]], "b": [[2, 14], [4, 12]], "c": [[9, 7], [12, 4]]}
    >>> ranking = rank({m: bayes_at_n(Outcomes.from_counts(c)) for m, c in counts.items()})
    >>> ranking.models, ranking.ranks.tolist()
    (('a', 'b', 'c'), [1.0, 1.0, 2.0])
    >>> ranking.rank_low.tolist(), ranking.rank_high.tolist()
    ([1.0, 1.0, 3.0], [2.0, 2.0, 3.0])
    >>> ranking.p_best.round(2).tolist()
    [0.74, 0.26, 0.0]
    """
    ties = check_option("ties", ties, TIE_RULES)
    confidence = check_confidence(confidence)
    seed = check_seed(seed)
    names = check_leaderboard(posteriors)
    if draws is not None:
        draws = check_size("draws", draws, 1000, len(names))
    ordered, levelled = sort_best_first(posteriors)
    best = list(ordered.values())
    by_task = [best] if tasks is None else [[task[name] for name in ordered] for task in tasks]
    is_population = best[0].scope == "population"
    pairings = [SharedQuestions.of(task) for task in by_task] if is_population else []
    shared = [pairing for pairing in pairings if pairing is not None]
    mu, sigma = np.array([[posterior.mu, posterior.sigma] for posterior in best]).T
    difference = None
    if paired := len(shared) == len(by_task):
        z, scores = _paired_separations(shared, levelled), draw_paired(shared, seed, draws)
        notes = [task.note for task in shared]
        if len(best) == 2 and len(shared) > 1:
            terms = [task.first_difference() for task in shared]
            distributions = tuple(term.distribution for term in terms)
            mean = WeightedSum(distributions, (1.0 / len(terms),) * len(terms))
            difference = replace(terms[0], mu=mean.mean, sigma=mean.sd, distribution=mean)
    else:
        z, scores = separations(levelled, sigma), draw_scores(best, draws, seed)
        unpaired = UNPAIRED if is_population and len(best) > 1 else None
        notes = [*(posterior.note for posterior in best), unpaired]
    simultaneous = compare_in_order(best, confidence, seed, by_task, difference)
    threshold = float(special.ndtri(confidence))
    if ties == "simultaneous":
        groups, threshold = separation_levels(simultaneous.separated), simultaneous.critical_value
    else:
        groups = tie_groups(z, threshold if ties == "adjacent" else 0.0)
    distribution, greater, worst_variance = count_ranks(scores)
    n_draws = scores.shape[1]
    return Ranking(
        models=tuple(ordered),
        ranks=np.asarray(groups + 1.0),
        mu=mu,
        sigma=sigma,
        z=z,
        p_best=distribution[:, 0],
        expected_rank=distribution @ np.arange(1.0, len(best) + 1.0),
        simultaneous=simultaneous,
        rank_distribution=distribution,
        p_greater=greater,
        ties=ties,
        confidence=confidence,
        threshold=threshold,
        quantity=best[0].quantity,
        scope=best[0].scope,
        draws=n_draws,
        seed=seed,
        mc_error=float(np.sqrt(worst_variance * draw_variance(n_draws, best))),
        paired=paired,
        n_clusters=shared[0].n_clusters if paired and tasks is None else None,
        note=joined_notes(notes),
    )


def _paired_separations(tasks: Sequence[SharedQuestions], levelled: FloatArray) -> FloatArray:
    """Return z of the mean difference of every two models, 0 where it favours the lower one."""
    difference = np.mean([task.difference for task in tasks], axis=0)
    sd = np.sqrt(np.sum([task.spread.sd**2 for task in tasks], axis=0)) / len(tasks)
    same_side = difference * np.sign(levelled[:, None] - levelled)
    return distance_in_sd(np.maximum(same_side, 0.0), sd)


def simultaneous_ranks(
    posteriors: Mapping[str, Posterior], confidence: float = 0.95, seed: int = 0
) -> dict[str, int]:
    """Return the ranks of `rank` by default, without the draws behind its probabilities.

    Parameters
    ----------
    posteriors, confidence, seed
        As for `rank`.

    Returns
    -------
    dict of str to int
        In the order of the input, from 1.
    """
    ordered, _ = sort_best_first(posteriors)
    result = compare_in_order(list(ordered.values()), confidence, seed)
    ranks = 1 + separation_levels(result.separated)
    of_model = dict(zip(ordered, ranks.tolist(), strict=True))
    return {name: of_model[name] for name in posteriors}


def compare_in_order(
    posteriors: Sequence[Posterior],
    confidence: float,
    seed: int,
    tasks: Sequence[Sequence[Posterior]] | None = None,
    difference: Posterior | None = None,
) -> SimultaneousComparisons:
    """Return which models are distinguishable: the one rule of `rank`, `compare` and `plan`.

    All pairs are compared at once, see `compare_simultaneously`. Two models are distinguishable
    only if the credible interval of their difference excludes 0 too.

    Parameters
    ----------
    posteriors : sequence of Posterior
        One per model, best first.
    confidence, seed
        As for `rank`; `confidence` is also the level of that interval.
    tasks : sequence of sequence of Posterior, optional
        The models' posteriors of every task, where `posteriors` are those of their means.
    difference : Posterior, optional
        Of two models, that of the difference of their scores; left out, that of `compare`.
    """
    low, high = posteriors[0].bounds
    errors = [pair_errors(task) for task in tasks or [posteriors]]
    result = compare_simultaneously(
        errors, len(posteriors), confidence, seed, _ROUNDING * (high - low), in_order=True
    )
    if len(posteriors) > 2 or not result.separated.any():
        return result
    difference = difference or pair_posterior(*posteriors)
    interval = difference.interval_by(IntervalSpec(confidence))
    if not interval.low <= 0.0 <= interval.high:
        return result
    separated = np.zeros((2, 2), dtype=np.bool_)
    return replace(result, separated=separated, rank_low=np.ones(2), rank_high=np.full(2, 2.0))


def are_distinguishable(
    pairs: Sequence[tuple[Posterior, Posterior]],
    confidence: float,
    seed: int = 0,
    difference: Posterior | None = None,
) -> bool:
    """Return whether two models are distinguishable, see `compare_in_order`.

    Parameters
    ----------
    pairs : sequence of (Posterior, Posterior)
        The posteriors of both models, one pair per task.
    confidence, seed, difference
        As for `compare_in_order`; the sign of the difference does not matter.
    """
    if sum(a.mu - b.mu for a, b in pairs) < 0.0:
        pairs = [(b, a) for a, b in pairs]
    return bool(compare_in_order(pairs[0], confidence, seed, pairs, difference).separated.any())


def sort_best_first(
    posteriors: Mapping[str, Posterior],
) -> tuple[dict[str, Posterior], FloatArray]:
    """Return posteriors by falling μ, and these μ with rounding taken out; see `best_first`."""
    names = list(posteriors)
    mu = np.array([posteriors[name].mu for name in names])
    sigma = np.array([posteriors[name].sigma for name in names])
    low, high = posteriors[names[0]].bounds
    order, levelled = best_first(mu, sigma, _ROUNDING * (high - low))
    return {names[i]: posteriors[names[i]] for i in order}, levelled
