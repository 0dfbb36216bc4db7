"""The posterior of maj@k: the expected credit of a plurality vote of k new trials."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.stats.arrays import FloatArray, IntArray
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    few_questions_note,
    hbayes_at_n,
    learned_prior,
    of_population,
)
from lm_eval_bayes.stats.intervals import SCOPES, Scope
from lm_eval_bayes.stats.maj_at_k import tabulated_answers
from lm_eval_bayes.stats.mixture import Mixture, learn_mixture
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.results import PerQuestion, Posterior, joined_notes
from lm_eval_bayes.stats.states import StateDistribution, beta_binomial, log_choose
from lm_eval_bayes.stats.validation import check_integer, check_option, check_seed, check_size
from lm_eval_bayes.stats.wrong_answers import (
    VoteCredits,
    WrongPrior,
    WrongTrials,
    learn_wrong_prior,
    mean_credits,
    vote_credits,
)

#: The largest k: the time grows with its third power.
_MOST_VOTES = 256
#: States of the questions' kinds.
_STATES = 800
#: The warning of a posterior where no question has two trials.
SINGLE_TRIALS = (
    "With one trial per question, chance and difficulty cannot be distinguished: at k > 1 the "
    "posterior depends on the prior of the questions' spread and of their wrong answers alone."
)
#: The warning of votes that rest on the model of the wrong answers.
WRONG_ANSWERS = (
    "The interval of a vote rests on a model of how often wrong answers agree, and is too narrow "
    "where many questions differ in that."
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
    a Beta prior of their common mean. The vote is that of `maj_at_k`:
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
    mixture = learn_mixture(outcomes.weighted_counts, seed=seed).thinned(_STATES)
    prior = learn_wrong_prior(
        questions.wrong, np.bincount(questions.where, minlength=len(questions.wrong))
    )
    rng = np.random.default_rng(seed)
    credits = vote_credits(questions.wrong, prior, k, draws, rng)
    node = rng.choice(prior.weight.size, mixture.n_states, p=prior.weight)
    moments = _benchmark_moments(mixture, questions.where, prior, credits, k)
    means = moments.at_state[np.arange(node.size), node]
    scores = StateDistribution(
        means, np.full_like(means, moments.within), mixture.chain, (0.0, 1.0), seed
    )
    note = _note(questions, outcomes)
    benchmark = Posterior(
        quantity="maj@k posterior",
        mu=scores.mean,
        sigma=scores.sd,
        per_question=PerQuestion(moments.question_mean, moments.question_sd),
        bounds=(0.0, 1.0),
        prior=None,
        distribution=scores,
        k=k,
        n_trials=outcomes.mean_trials,
        trials_range=outcomes.trials_range,
        learned=learned_prior(mixture),
        ess=scores.ess,
        seed=seed,
        note=note,
    )
    if scope == "benchmark":
        return benchmark
    means = _population_means(mixture, prior, k)[np.arange(node.size), node]
    return of_population(benchmark, means, mixture.chain)


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


def _note(questions: _Questions, outcomes: Outcomes) -> str | None:
    """Return the warnings about a posterior at k > 1."""
    if outcomes.most_trials <= 1:
        return joined_notes([SINGLE_TRIALS, questions.note])
    few = few_questions_note(outcomes.n_questions)
    return joined_notes([WRONG_ANSWERS, few, questions.note])


@dataclass(frozen=True, eq=False)
class _Moments:
    """The mean score at P states and G nodes of the wrong answers, (P, G), and its variance there.

    `question_mean` and `question_sd`, (M,), are those of each question.
    """

    at_state: FloatArray
    within: float
    question_mean: FloatArray
    question_sd: FloatArray


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


def _benchmark_moments(
    mixture: Mixture, where: IntArray, prior: WrongPrior, credits: VoteCredits, k: int
) -> _Moments:
    """Return the moments of the mean of v over the questions; `where` is of their wrong trials."""
    n_questions = where.size
    at_state = np.zeros((mixture.n_states, prior.weight.size))
    question_mean, within, spread = np.zeros((3, n_questions))
    weighted = credits.mean * prior.weight[:, None]
    alpha = mixture.share * mixture.strength[:, None]
    members = np.concatenate([part for _, part in mixture.memberships()], axis=1)
    for row, counts in enumerate(mixture.counts):
        votes = _right_votes(members[:, :, row], alpha + counts[:, None], k)
        own = np.flatnonzero(mixture.where == row)
        which, times = np.unique(where[own], return_counts=True)
        mean = credits.mean[which]
        at_state += votes.at_state @ np.tensordot(times, mean, axes=1).T
        expected = votes.at_state.mean(axis=0)
        # of the votes of p alone, given the states, and over all of them
        of_means = votes.at_state.T @ votes.at_state / mixture.n_states
        square = np.swapaxes(mean, 1, 2) @ weighted[which]
        mu = weighted[which].sum(axis=1) @ expected
        added = np.einsum("ij,pij->p", votes.joint, credits.covariance[which])
        own_within = np.einsum("ij,pij->p", votes.joint - of_means, square)
        total = np.einsum("ij,pij->p", votes.joint, square) - mu**2
        index = np.searchsorted(which, where[own])
        question_mean[own] = mu[index]
        within[own] = (own_within + added)[index]
        spread[own] = (total + np.maximum(added, 0.0))[index]
    return _Moments(
        at_state / n_questions,
        max(float(within.sum()), 0.0) / n_questions**2,
        np.clip(question_mean, 0.0, 1.0),
        np.sqrt(np.maximum(spread, 0.0)),
    )


def _population_means(mixture: Mixture, prior: WrongPrior, k: int) -> FloatArray:
    """Return E v of a further question at every state and node of the wrong answers, (P, G)."""
    (mean,) = mean_credits([WrongTrials((), 0)], prior, k)
    alpha = mixture.share * mixture.strength[:, None]
    return np.asarray(_right_votes(mixture.weight[:, 0], alpha, k).at_state @ mean.T)
