"""The posterior of maj@k: the expected credit of a plurality vote of k new trials."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.stats.arrays import FloatArray, IntArray
from lm_eval_bayes.stats.distributions.base import TabulatedDistribution, beta_quantile
from lm_eval_bayes.stats.distributions.beta_mixture import beta_with_moments
from lm_eval_bayes.stats.distributions.widened import AllowingForAnother
from lm_eval_bayes.stats.hierarchical.beta_binomial import (
    LEAST_EQUAL,
    ROUGH,
    HyperGrid,
    equal_probability,
    hyper_posterior,
)
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n, learned_from_grid
from lm_eval_bayes.stats.hierarchical.hyperprior import MEAN_SHAPE
from lm_eval_bayes.stats.intervals import SCOPES, Scope
from lm_eval_bayes.stats.maj_at_k import tabulated_answers
from lm_eval_bayes.stats.outcomes import Outcomes, Pairs, distinct_pairs
from lm_eval_bayes.stats.results import PerQuestion, Posterior, joined_notes
from lm_eval_bayes.stats.validation import check_integer, check_option, check_seed, check_size
from lm_eval_bayes.stats.wrong_answers import (
    VoteCredits,
    WrongPrior,
    WrongTrials,
    learn_wrong_prior,
    log_rising_factorials,
    mean_credits,
    vote_credits,
)

#: The largest k: the time grows with its third power.
_MOST_VOTES = 256
#: Nodes of p, where it is the same for all questions, and s of their common prior.
_EQUAL_NODES = 48
_EQUAL_STRENGTH = 1e7
#: Nodes of (m, s) below this share of the largest posterior probability are left out.
_NEGLIGIBLE = 1e-4
#: The warning of a posterior where no question has two trials.
SINGLE_TRIALS = (
    "With one trial per question, chance and difficulty cannot be distinguished: at k > 1 the "
    "posterior depends on the prior of the questions' spread and of their wrong answers alone."
)
#: The warning of a posterior at more votes than there are trials.
BEYOND_TRIALS = (
    "k = {k} exceeds the trials of some question (N = {n}): a vote of more than N rests on the "
    "Beta shape of the questions' common prior and on that of their wrong answers."
)
#: A posterior is skewed if its sd exceeds this share of the mean's distance from a bound.
_SKEWED = 0.7
#: The warning of a skewed posterior at k > 1.
NEAR_BOUND = (
    "The posterior is skewed towards a score that is nearly certain: its equal-tailed interval can "
    "end short of the true score. In simulations with 30 questions and N = 8, 95% intervals held "
    "the true maj@4 in 97% of runs and maj@8 in 97%, where p = .02 for all questions. Where "
    "p = .05 and nine of ten wrong trials agree, they held maj@4 in 98% and maj@8 in 91%, and "
    "those of the population in 97% and 87%."
)
#: The warning at k > 1 where votes are close.
CLOSE_VOTES = (
    "In at least half of the questions the right answer and the most frequent wrong one are within "
    "√(N/2) votes of each other. In simulations with N = 8, where every question has one such "
    "wrong answer, 95% intervals held the true maj@4 in 94% of runs and maj@8 in 92% with 30 "
    "questions, and maj@4 in 95% and maj@8 in 79% with 400."
)

#: Fewer questions than these have a warning.
_FEW_QUESTIONS = 10
#: The warning of few questions at k > 1.
FEW_QUESTIONS = (
    "The interval of few questions depends on the prior: of simulated 95% intervals of three "
    "questions as few as 92% held their maj@k, and 83% that of their population."
)
#: As many questions as these, or more, have a warning.
_MANY_QUESTIONS = 100
#: The warning of many questions at k > 1.
MANY_QUESTIONS = (
    "The interval of many questions is too narrow where the Pitman-Yor process does not describe "
    "their wrong answers. In simulations with 400 questions and N = 8, 95% intervals held the true "
    "maj@4 in 92% of runs and maj@8 in 73%, and those of the population in 95% and 78%, where one "
    "wrong answer takes .8 of the wrong trials of every question. Where wrong trials agree to "
    "different degrees, they held maj@4 in 87% and maj@8 in 87%."
)
#: The warning of a population's posterior at k > 1.
INDEPENDENT = (
    "Questions are taken as independent: where they come in clusters, the interval of their "
    "population is too narrow."
)
#: The warning of a population's posterior at as many votes as there are trials, or more.
AS_MANY_VOTES = (
    "Of simulated 95% intervals at N = 8 with 30 questions, 89 to 91% held the population's maj@8 "
    "in four of nine kinds of questions."
)


class _Questions(NamedTuple):
    """The trials of M questions in the form of the model."""

    outcomes: Outcomes
    wrong: list[WrongTrials]  # the distinct ones
    where: IntArray  # which of them each question has
    note: str | None


def maj_at_k_posterior(
    answers: Sequence[Sequence[Hashable]],
    correct: Sequence[Sequence[bool]],
    k: int,
    scope: Scope = "benchmark",
    *,
    seed: int = 0,
    draws: int = 1000,
) -> Posterior:
    """Return the posterior of maj@k, the expected credit of a plurality vote of k new trials.

    A trial of question α is right with probability p_α ~ Beta(s m, s (1 − m)), with (m, s)
    integrated out as in `hbayes_at_n`. The answers of its wrong trials follow a Pitman-Yor
    process whose concentration c and discount d are learned from all questions and integrated
    out, so that a new trial may give an answer not seen before; how often wrong trials abstain has
    a learned Beta prior too. The vote is that of `maj_at_k`:
    the most frequent answer wins, answers tied for the lead share the win equally, a trial
    without an answer abstains, and a vote of abstentions earns 0. All right trials count as one
    candidate, however they are written.

    Parameters
    ----------
    answers : M sequences of N_α hashables
        The extracted answer of every response, None where none was found.
    correct : M sequences of N_α bools
        Whether that response was graded correct.
    k : int
        From 1 to 256; above the trials of a question the posterior has a `note`.
    scope : {"benchmark", "population"}
        "benchmark": the mean over these M questions. "population": the mean over the population
        of questions that they are a sample of; questions are taken as independent, so it is too
        narrow where they come in clusters, which its `note` says.
    seed : int
        Seed of the draws.
    draws : int
        Pairs of votes drawn per question, 100 to 10⁷, for the part of σ that the wrong answers'
        probabilities add; all else is computed. Of many questions fewer are drawn, at least 16.

    Returns
    -------
    Posterior
        In [0, 1]. Its "exact" interval is that of the Beta distribution with the posterior's mean
        and sd. At k = 1 it is the posterior of `hbayes_at_n`.

    Raises
    ------
    InvalidInputError
        If the two arguments do not match, an answer is not hashable, an entry of `correct`
        is no boolean, or k, the scope, the seed or `draws` breaks its rule.

    Notes
    -----
    Given p_α and the wrong answers' probabilities the credit is
    v = Σ_r C(k, r) p^r (1 − p)^(k−r) h(r), with h(r) the probability that r right votes win
    against k − r wrong ones. p_α and h are independent given the hyperparameters.

    Where the trials do not exclude that p is the same for all questions (a posterior probability
    of .25 or more, of prior ½), intervals reach to the farther end of this model's and of theirs.

    Simulated coverage of 95% intervals at 30 questions, N = 8 and k = 4 | 8
    (`examples/majority_votes.py --runs 300 --seed 91`, standard error 1.3) over nine shapes: these
    questions 93 to 100 | 92 to 100%, the population 90 to 100 | 89 to 100%. Least at k = 8 are
    those whose questions all have one dominant wrong answer: 92% where it takes .8 of the wrong
    trials (the population 89%), 92 and 91% close to a tie (1,050 runs). With p = .05 for all and
    .9 of the wrong trials alike 98 | 91% and 97 | 87% (150 runs). There the intervals lie too high,
    for a Pitman-Yor process expects shares that differ from question to question. The more
    questions there are, the more that matters: with 400 they hold 92 | 73% and 95 | 78% where the
    answer takes .8 of the wrong trials (60 runs), 95 | 79% and 94 | 70% close to a tie (80 runs),
    and 87 | 87% and 95 | 98% where wrong trials agree to different degrees (60 runs). Notes say so.

    The Beta distribution's ends are not the posterior's quantiles where questions are few: of two
    questions they differ by more than .3 sd in 20 of 72 data sets, by 1.6 sd where one is never and
    the other always solved ([.39, .66] for [.50, .76]). Of three questions these intervals held 92
    to 97% over five shapes (of the population 83 to 99%; 150 runs), and intervals from the
    quantiles no more; with p = .02 or .98 for all questions those hold less (82 and 95 in place of
    89 and 100% of 80 runs at k = 8, 81 and 85 in place of 97 and 100% of the population).

    Examples
    --------
    Both questions are answered rightly by half of the trials. The wrong trials of the first agree,
    those of the second do not:

    >>> answers = [["7"] * 4 + ["9"] * 4, ["7"] * 4 + ["1", "2", "3", "4"]]
    >>> correct = [[True] * 4 + [False] * 4] * 2
    >>> posterior = maj_at_k_posterior(answers, correct, 8)
    >>> posterior.per_question.mu.round(2).tolist()
    [0.62, 0.82]
    """
    k = check_integer("k", k, 1, _MOST_VOTES)
    scope = check_option("scope", scope, SCOPES)
    seed = check_seed(seed)
    draws = check_size("draws", draws, 100)
    questions = _read(answers, correct)
    outcomes = questions.outcomes
    if k == 1:
        posterior = hbayes_at_n(outcomes, scope)
        return replace(
            posterior,
            quantity="maj@k posterior",
            k=1,
            note=joined_notes([posterior.note, questions.note]),
        )
    y, x = outcomes.weighted_counts.T
    grid = hyper_posterior(x, y, ROUGH)
    likely = grid.weight > _NEGLIGIBLE * grid.weight.max()
    weight = grid.weight[likely] / grid.weight[likely].sum()
    strength = np.exp(grid.log_strength[likely])
    logit = grid.logit_mean[likely]
    nodes = _Nodes(strength * special.expit(logit), strength * special.expit(-logit), weight)
    equal = _equal_nodes(x, y, grid)
    prior = learn_wrong_prior(
        questions.wrong, np.bincount(questions.where, minlength=len(questions.wrong))
    )
    credits = vote_credits(questions.wrong, prior, k, draws, np.random.default_rng(seed))

    def moments_under(nodes: _Nodes) -> _Moments:
        pairs = distinct_pairs(x, y)
        return _benchmark_moments(pairs, questions.where, nodes, prior, credits, k)

    moments = moments_under(nodes)
    alike = None if equal is None else moments_under(equal)
    benchmark = Posterior(
        quantity="maj@k posterior",
        mu=moments.mu,
        sigma=moments.sigma,
        per_question=PerQuestion(moments.question_mean, moments.question_sd),
        bounds=(0.0, 1.0),
        prior=None,
        distribution=_distribution(
            (moments.mu, moments.sigma), None if alike is None else (alike.mu, alike.sigma)
        ),
        k=k,
        n_trials=float((x + y).mean()),
        trials_range=outcomes.trials_range,
        learned=learned_from_grid(grid),
        seed=seed,
        note=_note(questions, k, moments.mu, moments.sigma),
    )
    if scope == "benchmark":
        return benchmark
    mu, sigma = _population_moments(nodes, prior, k)
    alike_population = None if equal is None else _population_moments(equal, prior, k)
    return replace(
        benchmark,
        mu=mu,
        sigma=sigma,
        distribution=_distribution((mu, sigma), alike_population),
        scope=scope,
        note=joined_notes(
            [
                _note(questions, k, mu, sigma),
                INDEPENDENT,
                AS_MANY_VOTES if k >= max(outcomes.trials_range[0], 2) else None,
            ]
        ),
        benchmark=benchmark,
    )


def _read(answers: Sequence[Sequence[Hashable]], correct: Sequence[Sequence[bool]]) -> _Questions:
    """Return the outcomes and the wrong trials."""
    counts, wrong_trials, n_merged = [], [], 0
    for votes, rights in tabulated_answers(answers, correct):
        n_right, n_trials = sum(rights.values()), sum(votes.values())
        counts.append((n_trials - n_right, n_right))
        wrong = {answer: n - rights[answer] for answer, n in votes.items()}
        abstained = wrong.pop(None, 0)
        sizes = sorted((n for n in wrong.values() if n), reverse=True)
        wrong_trials.append(WrongTrials(tuple(sizes), abstained))
        candidates = [answer for answer, n in rights.items() if n]
        n_merged += len(candidates) > 1 or any(wrong.get(answer) for answer in candidates)
    distinct = sorted(set(wrong_trials))
    index = {trials: i for i, trials in enumerate(distinct)}
    note = None
    if n_merged:
        note = (
            f"{plural(n_merged, 'question')} had right trials with different answers, or an "
            "answer that was graded both right and wrong: right trials count as one candidate, "
            "and wrong trials as others."
        )
    where = np.array([index[trials] for trials in wrong_trials])
    return _Questions(Outcomes.from_counts(counts), distinct, where, note)


def _note(questions: _Questions, k: int, mu: float, sigma: float) -> str | None:
    """Return the warnings about a posterior at k > 1, if any."""
    fewest, most = questions.outcomes.trials_range
    if most <= 1:
        return joined_notes([SINGLE_TRIALS, questions.note])
    wrong, right = questions.outcomes.counts.T
    most_frequent = np.array([max(trials.sizes, default=0) for trials in questions.wrong])[
        questions.where
    ]
    close = (
        (right > 0) & (most_frequent > 1) & ((right - most_frequent) ** 2 <= 0.5 * (right + wrong))
    )
    return joined_notes(
        [
            BEYOND_TRIALS.format(k=k, n=fewest) if k > fewest else None,
            NEAR_BOUND if sigma > _SKEWED * min(mu, 1.0 - mu) else None,
            CLOSE_VOTES if close.mean() >= 0.5 else None,
            FEW_QUESTIONS if close.size < _FEW_QUESTIONS else None,
            MANY_QUESTIONS if close.size >= _MANY_QUESTIONS else None,
            questions.note,
        ]
    )


class _Nodes(NamedTuple):
    """The posterior of (m, s): s m, s (1 − m) and the weight of each node, (H,)."""

    right: FloatArray
    wrong: FloatArray
    weight: FloatArray


@dataclass(frozen=True, eq=False)
class _Moments:
    """Mean and sd of the score, and of each question's, (M,)."""

    mu: float
    sigma: float
    question_mean: FloatArray
    question_sd: FloatArray


class _RightVotes(NamedTuple):
    """How many of k new trials of a question are right.

    `at_node`, shape (H, k + 1), is the distribution at each node of (m, s), and `joint`, shape
    (k + 1, k + 1), that of two votes of k trials each, over all nodes.
    """

    at_node: FloatArray
    joint: FloatArray


def _right_votes(x: float, y: float, nodes: _Nodes, k: int) -> _RightVotes:
    """Return the distributions after x right and y wrong trials."""
    right, wrong, total = (
        log_rising_factorials(a, 2 * k)
        for a in (x + nodes.right, y + nodes.wrong, x + y + nodes.right + nodes.wrong)
    )
    r = np.arange(k + 1)
    log_ways = special.gammaln(k + 1.0) - special.gammaln(r + 1.0) - special.gammaln(k - r + 1.0)
    at_node = np.exp(log_ways + right[:, : k + 1] + wrong[:, k::-1] - total[:, k, None])
    moments = nodes.weight @ np.exp(right + wrong[:, ::-1] - total[:, 2 * k, None])
    both = r[:, None] + r
    # the logarithms, for the ways alone may exceed the largest float
    log_joint = log_ways[:, None] + log_ways + np.log(np.maximum(moments[both], 1e-300))
    return _RightVotes(at_node, np.exp(log_joint))


def _benchmark_moments(
    pairs: Pairs,
    where: IntArray,
    nodes: _Nodes,
    prior: WrongPrior,
    credits: VoteCredits,
    k: int,
) -> _Moments:
    """Return the moments of the mean of v over the questions.

    Given the hyperparameters the questions are independent: the variance is that of the
    conditional mean of the score, and the mean of its conditional variance, of which each
    question's is E v² − E[E(v | hyperparameters)²].
    """
    M = where.size
    score = np.zeros((nodes.weight.size, prior.node_weight.size))
    question_mean, within, spread = np.zeros(M), np.zeros(M), np.zeros(M)
    weighted = credits.mean * prior.node_weight[:, None]
    for pair, (x, y) in enumerate(zip(pairs.first, pairs.second, strict=True)):
        votes = _right_votes(x, y, nodes, k)
        own = np.flatnonzero(pairs.where == pair)
        which, times = np.unique(where[own], return_counts=True)
        mean = credits.mean[which]
        score += votes.at_node @ np.tensordot(times, mean, axes=1).T
        expected = nodes.weight @ votes.at_node
        # of the votes of p alone, given the nodes, and over all of them
        of_means = (votes.at_node * nodes.weight[:, None]).T @ votes.at_node
        square = np.swapaxes(mean, 1, 2) @ weighted[which]
        mu = weighted[which].sum(axis=1) @ expected
        added = np.einsum("ij,pij->p", votes.joint, credits.covariance[which])
        own_within = np.einsum("ij,pij->p", votes.joint - of_means, square)
        total = np.einsum("ij,pij->p", votes.joint, square) - mu**2
        index = np.searchsorted(which, where[own])
        question_mean[own] = mu[index]
        within[own] = (own_within + added)[index]
        spread[own] = (total + np.maximum(added, 0.0))[index]
    score /= M
    mu = float(nodes.weight @ score @ prior.node_weight)
    between = float(nodes.weight @ (score - mu) ** 2 @ prior.node_weight)
    variance = between + max(float(within.sum()), 0.0) / M**2
    return _Moments(
        float(np.clip(mu, 0.0, 1.0)),
        float(np.sqrt(variance)),
        np.clip(question_mean, 0.0, 1.0),
        np.sqrt(np.maximum(spread, 0.0)),
    )


def _population_moments(nodes: _Nodes, prior: WrongPrior, k: int) -> tuple[float, float]:
    """Return mean and sd of E v of a further question given the hyperparameters."""
    (mean,) = mean_credits([WrongTrials((), 0)], prior, k)
    score = _right_votes(0.0, 0.0, nodes, k).at_node @ mean.T
    mu = float(nodes.weight @ score @ prior.node_weight)
    variance = float(nodes.weight @ (score - mu) ** 2 @ prior.node_weight)
    return float(np.clip(mu, 0.0, 1.0)), float(np.sqrt(variance))


def _equal_nodes(x: FloatArray, y: FloatArray, grid: HyperGrid) -> _Nodes | None:
    """Return nodes of p if it is the same for all questions; None where the trials exclude it."""
    if x.size == 1 or equal_probability(x, y, grid) < LEAST_EQUAL:
        return None
    middle = (np.arange(_EQUAL_NODES) + 0.5) / _EQUAL_NODES
    a, b = float(x.sum()) + MEAN_SHAPE, float(y.sum()) + MEAN_SHAPE
    p, q = beta_quantile(a, b, middle), beta_quantile(b, a, 1.0 - middle)
    weight = np.full(_EQUAL_NODES, 1.0 / _EQUAL_NODES)
    return _Nodes(_EQUAL_STRENGTH * p, _EQUAL_STRENGTH * q, weight)


def _distribution(
    own: tuple[float, float], alike: tuple[float, float] | None
) -> TabulatedDistribution | AllowingForAnother:
    """Return the Beta distribution of this mean and sd, its intervals widened by another's."""
    mu, sigma = own
    distribution = TabulatedDistribution(beta_with_moments(mu, sigma), mu, sigma)
    if alike is None:
        return distribution
    other = TabulatedDistribution(beta_with_moments(*alike), *alike)
    return AllowingForAnother(distribution, other)
