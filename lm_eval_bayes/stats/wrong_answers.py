"""The wrong answers of a benchmark's questions as Pitman-Yor processes, and the votes they cast.

A wrong trial abstains with a probability of its question's own, Beta(a, b) with the mean of all
questions' wrong trials and a + b = 2. If it does not, its answer is one of
those seen, in proportion to how often it was given less a discount d, or a new one, in proportion
to c + d J, where J answers were seen. With d = 0 this is a Dirichlet process of concentration c.
The questions share (c, d), whose posterior is computed on a grid, as fine as it needs, from the
exact probability of each question's partition of its wrong trials (Pitman 1995, eq. 16; for d = 0
the formula of Ewens 1972).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks
from lm_eval_bayes.stats.maj_at_k import complex_product
from lm_eval_bayes.stats.states import beta_binomial

#: The cells of (log c, d) at first: from, to and how many. The prior is c/(1 + c) ~ U(0, 1) and
#: d uniform.
_CELLS = ((-4.0, 5.0, 12), (0.0, 0.9, 5))
#: Cells are halved along an axis until the posterior's sd given the other coordinate is this many
#: of them, so often at most.
_RESOLVED, _MOST_HALVINGS = 0.6, 12
#: Cells whose centres are below this share of the largest posterior probability are not halved.
_UNLIKELY = 1e-40
#: Nodes below this share of the largest posterior probability are left out.
_NEGLIGIBLE = 5e-3
#: Nodes of all distinct wrong trials together, and the fewest of each.
_MOST_NODES, _FEWEST_NODES = 20_000, 4
#: Floats per block.
_BLOCK = 2_000_000
#: Comparisons of a drawn number with a cumulative sum, over all questions.
_DRAW_BUDGET = 10_000_000
_FEWEST_DRAWS = 16
#: The logarithm of the probability of terms that are neglected.
_LOST = 40.0
#: a + b.
_ABSTENTION_TRIALS = 2.0


class WrongTrials(NamedTuple):
    """The wrong trials of a question: how often each answer was given, and the abstentions.

    `sizes` are in descending order.
    """

    sizes: tuple[int, ...]
    abstained: int


@dataclass(frozen=True, eq=False)
class WrongPrior:
    """The posterior of (c, d) on G nodes, and (a, b).

    Parameters
    ----------
    concentration, discount, weight : array, shape (G,)
        c, d and the posterior probability of each node, sum 1.
    abstaining, answering : float
        a and b; a is 0 without abstentions in the data.
    """

    concentration: FloatArray
    discount: FloatArray
    weight: FloatArray
    abstaining: float
    answering: float


def learn_wrong_prior(trials: Sequence[WrongTrials], times: IntArray) -> WrongPrior:
    """Return the posterior of (c, d), and (a, b), from the wrong trials of all questions.

    The cells of a grid are halved, along the axes where the posterior is narrower than they are,
    until they resolve it.

    Parameters
    ----------
    trials : sequence of WrongTrials
        The distinct ones.
    times : array
        How many questions have each.
    """
    axes = [low + (np.arange(n) + 0.5) * (high - low) / n for low, high, n in _CELLS]
    width = np.array([(high - low) / n for low, high, n in _CELLS])
    centre = np.stack([axis.ravel() for axis in np.meshgrid(*axes)], axis=1)
    for _ in range(_MOST_HALVINGS):
        weight = _weight(centre, trials, times)
        offset = (centre - weight @ centre) / width
        # of each coordinate given the other, in cells
        sd = np.linalg.inv((offset.T * weight) @ offset + 1e-9 * np.eye(2)).diagonal() ** -0.5
        narrow = sd < _RESOLVED
        if not narrow.any():
            break
        centre = centre[weight > _UNLIKELY * weight.max()]
        for step in np.diag(0.25 * width)[narrow]:
            centre = np.concatenate([centre - step, centre + step])
        width = np.where(narrow, 0.5 * width, width)
    weight = _weight(centre, trials, times)
    likely = weight > _NEGLIGIBLE * weight.max()
    centre, weight = centre[likely], weight[likely] / weight[likely].sum()
    n_nodes = max(_MOST_NODES // len(trials), _FEWEST_NODES)
    if n_nodes < weight.size:
        middle = (np.arange(n_nodes) + 0.5) / n_nodes
        centre = centre[np.searchsorted(np.cumsum(weight), middle)]
        weight = np.full(n_nodes, 1.0 / n_nodes)
    abstained = float(sum(n * wrong.abstained for n, wrong in zip(times, trials, strict=True)))
    answered = float(sum(n * sum(wrong.sizes) for n, wrong in zip(times, trials, strict=True)))
    silent = _ABSTENTION_TRIALS * abstained / max(abstained + answered, 1.0)
    return WrongPrior(
        np.exp(centre[:, 0]), centre[:, 1], weight, silent, _ABSTENTION_TRIALS - silent
    )


def _weight(centre: FloatArray, trials: Sequence[WrongTrials], times: IntArray) -> FloatArray:
    """Return the posterior probability of cells of equal size around (log c, d), (G,)."""
    log_c, discount = centre.T
    c = np.exp(log_c)
    # the density of log c where c/(1 + c) is uniform
    log_weight = log_c - 2.0 * np.log1p(c) + _log_probability(trials, times, c, discount)
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def _log_probability(
    trials: Sequence[WrongTrials], times: IntArray, c: FloatArray, d: FloatArray
) -> FloatArray:
    """Return the log probability of the partitions of all questions' trials into answers, (G,).

    It depends on the numbers of questions with n answered trials and with more than j answers,
    and of answers that were given s times.
    """
    n_answers = np.array([len(wrong.sizes) for wrong in trials])
    sizes = np.fromiter(chain.from_iterable(wrong.sizes for wrong in trials), dtype=np.int64)
    with_answered = np.bincount([sum(wrong.sizes) for wrong in trials], times)
    with_more = times.sum() - np.bincount(n_answers, times).cumsum()
    of_size = np.bincount(sizes, np.repeat(times, n_answers))
    total = np.zeros_like(c)
    for n in np.flatnonzero(with_answered[1:]) + 1:
        total -= with_answered[n] * (special.gammaln(c + n) - special.gammaln(c + 1.0))
    for j in np.flatnonzero(with_more[1:]) + 1:
        total += with_more[j] * np.log(c + d * j)
    for size in np.flatnonzero(of_size):
        total += of_size[size] * (special.gammaln(size - d) - special.gammaln(1.0 - d))
    return total


@dataclass(frozen=True, eq=False)
class VoteCredits:
    """The moments of h(r), the expected credit of a vote in which r of k trials are right.

    h(r) depends on the unknown probabilities of the wrong answers.

    Parameters
    ----------
    mean : array, shape (P, G, k + 1)
        E h(r) for each of the wrong trials, at each node of (c, d).
    covariance : array, shape (P, k + 1, k + 1)
        Cov(h(r), h(r')) given (c, d), averaged over their posterior. It is drawn.
    """

    mean: FloatArray
    covariance: FloatArray


def vote_credits(
    trials: Sequence[WrongTrials],
    prior: WrongPrior,
    k: int,
    draws: int,
    rng: np.random.Generator,
) -> VoteCredits:
    """Return the moments of h(r).

    Parameters
    ----------
    trials : sequence of WrongTrials
        P distinct ones.
    prior : WrongPrior
        The posterior of (c, d) and (a, b).
    k : int
        Votes.
    draws : int
        Pairs of votes drawn for each covariance; fewer where there are many.
    rng : Generator
        Source of the draws behind the covariances.
    """
    mean = mean_credits(trials, prior, k)
    return VoteCredits(mean, _covariances(trials, prior, mean, k, draws, rng))


# -- the mean credits, by generating functions ---------------------------------------------------


def mean_credits(trials: Sequence[WrongTrials], prior: WrongPrior, k: int) -> FloatArray:
    """Return E h(r) for each of the wrong trials at each node, shape (P, G, k + 1).

    Parameters
    ----------
    trials, prior, k
        As in `vote_credits`.
    """
    mean = np.zeros((len(trials), prior.weight.size, k + 1))
    # the tilt of the generating functions suits a range of numbers of wrong trials
    magnitude = np.array([sum(wrong.sizes).bit_length() for wrong in trials])
    for bits in np.unique(magnitude):
        where = np.flatnonzero(magnitude == bits)
        for part in blocks(where.size, prior.weight.size * (k + 1) * (k // 4 + 1), _BLOCK):
            some = where[part]
            mean[some] = _mean_credits([trials[i] for i in some], prior, k)
    return mean


def _mean_credits(trials: Sequence[WrongTrials], prior: WrongPrior, k: int) -> FloatArray:
    """Return E h(r), shape (P, G, k + 1).

    The right answer has r votes; of the k − r others n are not abstentions. The exponential
    generating function of the votes of an answer given j times is that of a negative binomial of
    size j − d, cut off above r, with its term of r votes multiplied by z to mark a tie; new
    answers have (1 − d A)^(−θ/d), A = Σ_s (1 − d)...(s − 1 − d) x^s / s!, cut off alike. The
    coefficient of x^n of their product, over that without a limit, is Σ_t P(no answer has more
    than r, t have r) z^t, and the credit Σ_t P(t)/(1 + t) is its integral over z from 0 to 1, by
    Gauss and Legendre. Coefficients come from points x on a circle.
    """
    answered = np.array([sum(wrong.sizes) for wrong in trials], dtype=np.float64)
    flat = np.fromiter(chain.from_iterable(wrong.sizes for wrong in trials), dtype=np.int64)
    sizes = np.unique(flat)
    question = np.repeat(np.arange(len(trials)), [len(wrong.sizes) for wrong in trials])
    times = np.zeros((len(trials), sizes.size))
    np.add.at(times, (question, np.searchsorted(sizes, flat)), 1.0)
    c, d = prior.concentration[:, None], prior.discount[:, None]
    tilt = k / (k + answered.max() + 5.0)
    n_answers = np.array([len(wrong.sizes) for wrong in trials])
    theta = c + d * n_answers[:, None, None]  # (P, G, 1)
    n_points = 2 * ((k - int(_LOST / np.log(tilt))) // 2 + 1)
    x = np.exp(1j * np.pi * (2.0 * np.arange(n_points // 2) + 1.0) / n_points)
    mean = np.zeros((len(trials), prior.weight.size, k + 1))
    mean[:, :, k // 2 + 1 :] = 1.0
    for r in range(1, k // 2 + 1):
        most, s = k - r, np.arange(1, r + 1)
        nodes, weights = special.roots_legendre(most // r // 2 + 1)
        ties = np.ones((nodes.size, r + 1))
        ties[:, r] = 0.5 * (nodes + 1.0)
        powers = (ties[:, None] * x[:, None] ** np.arange(r + 1)).reshape(-1, r + 1).T  # (r+1, ZX)
        seen = _negative_binomial(sizes[:, None] - prior.discount, r, tilt) @ powers
        log_block = special.gammaln(s - d) - special.gammaln(1.0 - d) - special.gammaln(s + 1.0)
        new = np.exp(log_block + s * np.log(tilt)) @ powers[1:]  # (G, ZX)
        log_new = new + d * new**2 / 2.0 + d**2 * new**3 / 3.0  # for a small d
        log_new = np.log1p(-tilt) + np.where(
            d < 1e-4, log_new, -np.log(1.0 - d * new) / np.maximum(d, 1e-9)
        )
        log_seen = np.log(seen).reshape(sizes.size, log_new.size)
        log_value = complex_product(times, log_seen).reshape(len(trials), *log_new.shape)
        value = np.exp(log_value + theta * log_new).reshape(*theta.shape[:2], nodes.size, x.size)
        series = np.einsum("pgzx,z->pgx", value, 0.5 * weights)
        terms = (series @ x[:, None] ** -np.arange(most + 1.0)).real * (2.0 / n_points)
        total = _negative_binomial(answered[:, None] + prior.concentration, most, tilt)
        answering = _answering(trials, prior, most)
        mean[:, :, r] = (terms / total * answering).sum(axis=2)
    return np.clip(mean, 0.0, 1.0)


def _answering(trials: Sequence[WrongTrials], prior: WrongPrior, n: int) -> FloatArray:
    """Return the probabilities that 0..n of n wrong trials do not abstain, shape (P, 1, n + 1)."""
    abstained = np.array([wrong.abstained for wrong in trials]) + max(prior.abstaining, 1e-300)
    answered = np.array([sum(wrong.sizes) for wrong in trials]) + prior.answering
    return np.asarray(beta_binomial(answered, abstained, n).T[:, None])


def _negative_binomial(size: FloatArray, n: int, tilt: float) -> FloatArray:
    """Return the probabilities of 0..n of a negative binomial of each size, on a new last axis."""
    j = np.arange(n + 1)
    size = size[..., None]
    log = special.gammaln(size + j) - special.gammaln(size) - special.gammaln(j + 1.0)
    return np.asarray(np.exp(log + j * np.log(tilt) + size * np.log1p(-tilt)))


# -- the covariances of the credits, by pairs of votes -------------------------------------------


def _covariances(
    trials: Sequence[WrongTrials],
    prior: WrongPrior,
    mean: FloatArray,
    k: int,
    draws: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return Cov(h(r), h(r')) for each of the wrong trials from pairs of votes, (P, k+1, k+1).

    The k wrong trials of a first vote and the k of a second, drawn one after the other from the
    urn, are independent given the unknown probabilities. The product of the deviations of their
    credits from E h is then an unbiased estimate of the covariance.
    """
    covariance = np.zeros((len(trials), k + 1, k + 1))
    widths = np.array([len(wrong.sizes) for wrong in trials]) + 2 * k
    per_draw = 2 * k * float(widths.sum())
    n_draws = min(draws, max(int(_DRAW_BUDGET / per_draw), _FEWEST_DRAWS))
    for part in blocks(len(trials), n_draws * int(widths.max()), _BLOCK):
        some = np.arange(len(trials))[part]
        votes, node = _draw_votes([trials[i] for i in some], prior, 2 * k, n_draws, rng)
        expected = mean[some[:, None], node]
        first, second = (_credits(votes[..., half]) for half in (slice(k), slice(k, None)))
        product = np.swapaxes(first - expected, 1, 2) @ (second - expected) / n_draws
        covariance[part] = 0.5 * (product + np.swapaxes(product, 1, 2))
    return covariance


def _draw_votes(
    trials: Sequence[WrongTrials],
    prior: WrongPrior,
    n_votes: int,
    n_draws: int,
    rng: np.random.Generator,
) -> tuple[IntArray, IntArray]:
    """Draw wrong trials from the urns: the numbers of their answers and the nodes.

    Shapes (P, S, n_votes) and (P, S); an abstention has the number −1.
    """
    sizes = [wrong.sizes for wrong in trials]
    P, width = len(trials), max(map(len, sizes)) + n_votes
    weight = prior.weight
    # a node in each of the equal slices of the cumulative weight
    slices = (np.arange(n_draws) + rng.random((P, n_draws))) / n_draws
    node = np.searchsorted(np.cumsum(weight), slices).clip(max=weight.size - 1)
    c, d = prior.concentration[node], prior.discount[node]
    mass = np.zeros((P, n_draws, width))
    for index, own in enumerate(sizes):
        mass[index, :, : len(own)] = np.array(own) - d[index][:, None]
    n_seen = np.broadcast_to(np.array([len(own) for own in sizes])[:, None], (P, n_draws)).copy()
    answered = np.array([[float(sum(own))] for own in sizes]) + np.zeros((P, n_draws))
    abstained = np.array([[float(wrong.abstained)] for wrong in trials]) + np.zeros((P, n_draws))
    a, b = prior.abstaining, prior.answering
    votes = np.empty((P, n_draws, n_votes), dtype=np.int64)
    rows, columns = np.ogrid[:P, :n_draws]
    for vote in range(n_votes):
        u = rng.random((P, n_draws)) * (c + answered)
        used = int(n_seen.max())
        chosen = (np.cumsum(mass[..., :used], axis=-1) <= u[..., None]).sum(axis=-1)
        # beyond the seen answers the cumulative sum is flat: a new answer
        chosen = np.minimum(chosen, n_seen)
        silent = rng.random((P, n_draws)) * (a + b + answered + abstained) < a + abstained
        new = (chosen == n_seen) & ~silent
        mass[rows, columns, chosen] += np.where(silent, 0.0, np.where(new, 1.0 - d, 1.0))
        n_seen += new
        answered += ~silent
        abstained += silent
        votes[..., vote] = np.where(silent, -1, chosen)
    return votes, node


def _credits(votes: IntArray) -> FloatArray:
    """Return the credit of the right answer with r votes against the first k − r, (P, S, k + 1)."""
    k = votes.shape[-1]
    credit = np.zeros((*votes.shape[:2], k + 1))
    credit[..., k // 2 + 1 :] = 1.0
    tally = np.zeros((*votes.shape[:2], max(int(votes.max()), 0) + 1), dtype=np.int16)
    lead = np.zeros(votes.shape[:2], dtype=np.int64)
    n_leaders = np.zeros(votes.shape[:2], dtype=np.int64)
    rows, columns = np.ogrid[: votes.shape[0], : votes.shape[1]]
    for n in range(1, k):
        answer = votes[..., n - 1]
        cast = answer >= 0
        tally[rows, columns, answer] += cast
        votes_of = np.where(cast, tally[rows, columns, answer], 0)
        n_leaders = np.where(votes_of > lead, 1, n_leaders + (cast & (votes_of == lead)))
        lead = np.maximum(lead, votes_of)
        r = k - n
        if r <= k // 2:
            ties = np.where(lead == r, 1.0 / (1.0 + n_leaders), 0.0)
            credit[..., r] = np.where(lead < r, 1.0, ties)
    return credit
