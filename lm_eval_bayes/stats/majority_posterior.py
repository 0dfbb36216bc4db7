"""The posterior of maj@k: the expected credit of a plurality vote of k new trials."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes._util.validation import check_integer, check_option, check_seed
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    few_questions_note,
    hbayes_at_n,
    learned_prior,
    of_population,
    posterior_by_states,
)
from lm_eval_bayes.stats.intervals import SCOPES, Scope
from lm_eval_bayes.stats.majority import Tallies, tabulated_answers
from lm_eval_bayes.stats.mixture import Mixture, learn_mixture
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.pass_family_posteriors import trials_note
from lm_eval_bayes.stats.results import PerQuestion, Posterior, joined_notes
from lm_eval_bayes.stats.states import StateDistribution, beta_binomial, log_choose

#: The largest k: the time grows with its square.
_MOST_VOTES = 256
#: States of the questions' kinds.
_STATES = 800
#: Numbers per block.
_BLOCK = 100_000
#: Draws of the wrong answers' probabilities: numbers in all of them, the fewest and the most.
_NUMBERS, _FEWEST, _MOST = 60_000_000, 8, 400
#: Answers not seen before that may repeat, in all questions, and the fewest and the most of each;
#: the rest of their probability is of single ones.
_NEW, _FEWEST_NEW, _MOST_NEW = 20_000, 4, 16
#: The most nodes of an integral over ties.
_NODES = 3
#: Pseudo-trials of the prior of how often wrong trials abstain.
_ABSTENTION_TRIALS = 2.0
#: Nodes of the posterior of (log c, d).
_LOG_C, _D = (x.ravel() for x in np.meshgrid(np.linspace(-4.0, 5.0, 61), np.linspace(0, 0.9, 19)))


class Questions(NamedTuple):
    """The P distinct questions: right trials, abstentions, and sizes of the wrong answers.

    All are of shape (P,), but `sizes` (P, W) says how often each wrong answer was given, in
    descending order, zeros last. `times` is how often each question occurs.
    """

    right: FloatArray
    abstained: FloatArray
    sizes: FloatArray
    times: IntArray

    def wrong(self) -> FloatArray:
        """Return the wrong trials of each, (P,)."""
        return np.asarray(self.abstained + self.sizes.sum(axis=1))


class WrongPrior(NamedTuple):
    """c and d, and the pseudo-trials of a wrong trial without and with an answer."""

    concentration: float
    discount: float
    abstaining: float
    answering: float


def maj_at_k_posterior(
    answers: Sequence[Sequence[Hashable]],
    correct: Sequence[Sequence[bool]],
    k: int,
    scope: Scope = "benchmark",
    *,
    seed: int = 0,
) -> Posterior:
    """Return the posterior of maj@k, the expected credit of a plurality vote of k new trials.

    A trial of question α is right with the probability p_α of the kinds of questions that
    `hbayes_at_n` learns. The answers of its wrong trials follow a Pitman-Yor process whose
    concentration c and discount d are learned from all questions, so that a new trial may give an
    answer not seen before; how often wrong trials abstain has a Beta prior of their common mean.
    The vote is that of `maj_at_k`: the most frequent answer wins, answers tied for the lead share
    the win equally, a trial without an answer abstains, and a vote of abstentions earns 0. All
    right trials count as one candidate, however they are written.

    Parameters
    ----------
    answers : M sequences of N_α hashables
        The extracted answer of every response, None where none was found.
    correct : M sequences of N_α bools
        Whether that response was graded correct.
    k : int
        From 1 to 256; above twice the trials of a question the posterior has a `note`.
    scope : {"benchmark", "population"}
        "benchmark": the mean over these M questions. "population": the mean over the population
        of questions that they are a sample of, taken as independent.
    seed : int
        Seed of the states and of the draws of the wrong answers' probabilities.

    Returns
    -------
    Posterior
        In [0, 1]. At k = 1 it is the posterior of `hbayes_at_n`.

    Raises
    ------
    InvalidInputError
        If the two arguments do not match, an answer is not hashable, an entry of `correct`
        is no boolean, or k, the scope or the seed breaks its rule.

    Notes
    -----
    Given p_α and the wrong answers' probabilities the credit is
    v = Σ_r C(k, r) p^r (1 − p)^(k−r) h(r), with h(r) the probability that r right votes win
    against k − r wrong ones. `examples/majority_votes.py` has the coverage: it is low where
    hundreds of questions have wrong answers that all agree to the same degree, close to a tie.

    Examples
    --------
    Both questions are answered rightly by half of the trials. The wrong trials of the first agree,
    those of the second do not:

    >>> answers = [["7"] * 4 + ["9"] * 4, ["7"] * 4 + ["1", "2", "3", "4"]]
    >>> correct = [[True] * 4 + [False] * 4] * 2
    >>> posterior = maj_at_k_posterior(answers, correct, 8)
    >>> posterior.per_question.mu.round(2).tolist()
    [0.59, 0.8]
    """
    k = check_integer("k", k, 1, _MOST_VOTES)
    scope = check_option("scope", scope, SCOPES)
    seed = check_seed(seed)
    questions, where = _questions(tabulated_answers(answers, correct))
    counts = np.stack([questions.wrong(), questions.right], axis=1)[where]
    outcomes = Outcomes.from_counts(counts)
    if k == 1:
        posterior = hbayes_at_n(outcomes, scope, seed=seed)
        return replace(posterior, quantity="maj@k posterior", k=1)
    mixture = learn_mixture(counts, seed=seed).thinned(_STATES)
    prior, rng = learn_wrong_prior(questions), np.random.default_rng(seed)
    credits = draw_credits(questions, prior, k, rng)
    scores, per_question = _posterior(mixture, where, credits, seed)
    note = joined_notes([trials_note(counts, k), few_questions_note(where.size)])
    learned = learned_prior(mixture)
    benchmark = posterior_by_states(
        "maj@k posterior", scores, per_question, outcomes, learned, k=k, note=note
    )
    if scope == "benchmark":
        return benchmark
    nothing = Questions(np.zeros(1), np.zeros(1), np.zeros((1, 0)), np.ones(1, dtype=np.int64))
    credit = draw_credits(nothing, prior, k, rng)[0].mean(axis=0)
    alpha = mixture.share * mixture.strength[:, None]
    votes = _right_votes(mixture.weight[:, 0], alpha, k)
    return of_population(benchmark, votes.at_state @ credit, mixture.chain)


def _questions(tallies: Tallies) -> tuple[Questions, IntArray]:
    """Return the distinct questions, and which of them each question is, (M,)."""
    wrong, n_questions = tallies.votes - tallies.rights, tallies.totals.size
    named = ~tallies.silent & (wrong > 0)
    question, given = tallies.question[named], wrong[named]
    order = np.lexsort((-given, question))
    question = question[order]
    column = np.arange(question.size) - np.searchsorted(question, question)
    sizes = np.zeros((n_questions, column.max(initial=-1) + 1))
    sizes[question, column] = given[order]
    right, abstained = (
        np.bincount(tallies.question, x, n_questions)
        for x in (tallies.rights, tallies.silent * wrong)
    )
    rows, where, times = np.unique(
        np.column_stack([right, abstained, sizes]), axis=0, return_inverse=True, return_counts=True
    )
    return Questions(rows[:, 0], rows[:, 1], rows[:, 2:], times), where.reshape(-1)


def learn_wrong_prior(questions: Questions) -> WrongPrior:
    """Return c, d and the prior of abstentions.

    The prior is c/(1 + c) ~ U(0, 1) and d uniform, and the likelihood the probability of each
    question's partition of its wrong trials (Pitman 1995, eq. 16). The values are posterior means,
    that of c geometric.
    """
    c, sizes, times = np.exp(_LOG_C), questions.sizes, questions.times
    answered, n_answers = sizes.sum(axis=1), (sizes > 0.0).sum(axis=1)
    log_weight = _LOG_C - 2.0 * np.log1p(c)
    for n in np.unique(answered[answered > 0.0]):
        ratio = special.gammaln(c + n) - special.gammaln(c + 1.0)
        log_weight -= times[answered == n].sum() * ratio
    for j in range(1, sizes.shape[1]):
        log_weight += times[n_answers > j].sum() * np.log(c + _D * j)
    for size in np.unique(sizes[sizes > 1.0]):
        ratio = special.gammaln(size - _D) - special.gammaln(1.0 - _D)
        log_weight += (times @ (sizes == size)).sum() * ratio
    abstained, total = questions.times @ np.stack([questions.abstained, answered], axis=1)
    silent = _ABSTENTION_TRIALS * float(abstained / max(abstained + total, 1.0))
    weight = special.softmax(log_weight)
    concentration, discount = float(np.exp(weight @ _LOG_C)), float(weight @ _D)
    return WrongPrior(concentration, discount, silent, _ABSTENTION_TRIALS - silent)


def draw_credits(
    questions: Questions, prior: WrongPrior, k: int, rng: np.random.Generator
) -> FloatArray:
    """Draw the expected credit of r = 0..k right votes of k for P questions, (P, S, k + 1).

    It is that given the probabilities of a wrong trial's answers, which are drawn S times.
    """
    n_answers = (questions.sizes > 0.0).sum(axis=1)
    n_new = int(np.clip(_NEW // n_answers.size, _FEWEST_NEW, _MOST_NEW))
    per_draw = (n_answers + n_new) * (k // 2 + 2)
    n_draws = int(np.clip(_NUMBERS // (per_draw.sum() * k), _FEWEST, _MOST))
    credit = np.empty((n_answers.size, n_draws, k + 1))
    by_number = np.argsort(n_answers)
    for part in blocks(n_answers.size, int(per_draw.max()) * n_draws, _BLOCK):
        own = by_number[part]
        sizes = questions.sizes[own, : n_answers[own[-1]]].T
        sizes, abstained = (
            np.repeat(x, n_draws, axis=-1) for x in (sizes, questions.abstained[own])
        )
        shares = _draw_shares(sizes, abstained, prior, n_new, rng)
        credit[own] = _credits(*shares, k).reshape(own.size, n_draws, -1)
    return credit


def _draw_shares(
    sizes: FloatArray,
    abstained: FloatArray,
    prior: WrongPrior,
    n_new: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draw the probabilities of a wrong trial's answers (W, E), of single ones and of none (E,).

    New answers have the shares of a stick that is broken; the rest of it are answers that no two
    trials give.
    """
    d = prior.discount
    c = prior.concentration + d * (sizes > 0.0).sum(axis=0)
    new = np.maximum(rng.standard_gamma(c), 1e-300)
    broken = rng.beta(1.0 - d, c + d * np.arange(1.0, n_new + 1.0)[:, None])
    left = np.cumprod(np.vstack([new, 1.0 - broken]), axis=0)
    shares = np.vstack(
        [rng.standard_gamma(np.maximum(sizes - d, 0.0)), left[:-1] * broken, left[-1:]]
    )
    answering = rng.standard_gamma(sizes.sum(axis=0) + prior.answering)
    answering /= answering + rng.standard_gamma(abstained + prior.abstaining)
    shares *= answering / shares.sum(axis=0)
    return shares[:-1], shares[-1], 1.0 - answering


def _credits(shares: FloatArray, single: FloatArray, silent: FloatArray, k: int) -> FloatArray:
    """Return the credit of r = 0..k right votes given a wrong trial's probabilities, (E, k + 1).

    n! times the coefficient of x^n, n = k − r, of Π_j Σ_{s<=r} (q_j x)^s/s!, with the term of r
    votes times z, is Σ_t P(no answer has more than r votes, t have r) z^t; the credit
    Σ_t P(t)/(1 + t) is its integral over z from 0 to 1, by Gauss and Legendre. Single answers tie
    at r = 1. The coefficients come from points x on a circle.
    """
    n_points = 2 * (k // 2 + 2)
    angle = np.pi * (np.arange(n_points // 2) * 2.0 + 1.0) / n_points
    x = max(k - 2.0 * np.sqrt(k), k / 3.0) * np.exp(1j * angle)
    credit = np.zeros((single.size, k + 1))
    credit[:, k // 2 + 1 :] = 1.0
    rate = shares[..., None] * x
    below, last = np.zeros_like(rate), np.ones_like(rate)
    for r in range(1, k // 2 + 1):
        below += last
        last *= rate / r
        n = k - r
        factor = np.exp(special.gammaln(n + 1.0) - n * np.log(x)) * (2.0 / n_points)
        nodes, weights = special.roots_legendre(min(n // r // 2 + 1, _NODES))
        for z, weight in zip(0.5 * (nodes + 1.0), 0.5 * weights, strict=True):
            unlimited = silent + single * (z if r == 1 else 1.0)
            value = np.exp(unlimited[:, None] * x) * (below + z * last).prod(axis=0)
            credit[:, r] += weight * (value @ factor).real
    return np.clip(credit, 0.0, 1.0)


def _posterior(
    mixture: Mixture, where: IntArray, credits: FloatArray, seed: int
) -> tuple[StateDistribution, PerQuestion]:
    """Return the distribution of the mean of v, and the moments of every question's."""
    _, first, times = np.unique(where, return_index=True, return_counts=True)
    mean, square, known = np.empty((3, times.size))
    at_state = np.zeros(mixture.n_states)
    alpha = mixture.share * mixture.strength[:, None]
    members = np.concatenate([part for _, part in mixture.memberships()], axis=2)
    for row, counts in enumerate(mixture.counts):
        own = np.flatnonzero(mixture.where[first] == row)
        votes = _right_votes(members[:, row], alpha + counts[:, None], credits.shape[2] - 1)
        credit = credits[own].mean(axis=1)
        at_state += votes.at_state @ (times[own] @ credit)
        mean[own] = credit @ votes.at_state.mean(axis=0)
        of_states = votes.at_state.T @ votes.at_state / mixture.n_states
        known[own] = ((credit @ of_states) * credit).sum(axis=1)
        square[own] = ((credits[own] @ votes.joint) * credits[own]).sum(axis=2).mean(axis=1)
    within = float(times @ np.maximum(square - known, 0.0)) / where.size**2
    means = at_state / where.size
    variances = np.full_like(means, within)
    sd = np.sqrt(np.maximum(square - mean**2, 0.0))
    per_question = PerQuestion(np.clip(mean, 0.0, 1.0)[where], sd[where])
    return StateDistribution(means, variances, mixture.chain, (0.0, 1.0), seed), per_question


class _RightVotes(NamedTuple):
    """How many of k new trials of a question are right.

    `at_state`, (P, k + 1), is the distribution in every state, and `joint`, (k + 1, k + 1), that
    of two vectors of k trials given the same p, over all states.
    """

    at_state: FloatArray
    joint: FloatArray


def _right_votes(member: FloatArray, alpha: FloatArray, k: int) -> _RightVotes:
    """Return the distributions for Beta parameters (2, 2, P) of both kinds, and their (2, P)."""
    at_state, of_two = np.zeros((k + 1, member.shape[1])), np.zeros(2 * k + 1)
    for part, (wrong, right) in zip(member, alpha, strict=True):
        at_state += part * beta_binomial(right, wrong, k)
        of_two += beta_binomial(right, wrong, 2 * k) @ part / part.size
    # of those in a random half of 2k trials
    r = np.arange(k + 1.0)
    ways = log_choose(k, r)
    log_share = ways[:, None] + ways - log_choose(2 * k, r[:, None] + r)
    joint = np.exp(log_share) * of_two[np.arange(k + 1)[:, None] + np.arange(k + 1)]
    return _RightVotes(at_state.T, joint)
