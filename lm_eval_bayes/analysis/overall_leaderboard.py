"""One leaderboard of several tasks: models ranked by the equal-weighted mean of their scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lm_eval_bayes.analysis.leaderboard import Leaderboard, places_of
from lm_eval_bayes.analysis.task_mean import mean_posterior
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.comparison.difference import draw_variance, joined_notes
from lm_eval_bayes.stats.comparison.shared_questions import SharedQuestions
from lm_eval_bayes.stats.ranking.rank import Ranking, count_ranks, rank, rank_interval
from lm_eval_bayes.stats.ranking.tie_rules import best_first, numbered, tie_groups
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import FloatArray, read_only

#: Draws of single questions' scores, and how many joint draws there are, as for `rank`.
_QUESTIONS_DRAWN, _FEWEST, _DRAWS = 20_000_000, 4_000, 20_000
#: Two means nearer than this share of the range of scores differ by rounding only.
_ROUNDING = 1e-12


def overall_leaderboard(boards: Sequence[Leaderboard]) -> Leaderboard:
    """Rank models by the mean of their scores on several tasks, each task counting the same.

    The trials of different tasks are independent, so that a mean has the sd sqrt(Σ σ²)/T. In
    scope "population" two models are paired by question within every task, as `rank` does it.

    Parameters
    ----------
    boards : sequence of Leaderboard
        At least two, of different tasks, the same models, and made by the same rules.

    Returns
    -------
    Leaderboard

    Raises
    ------
    InvalidInputError
        If the leaderboards do not fit together.
    """
    first = boards[0]
    _check(boards)
    posteriors = {
        model: mean_posterior(
            [one.posterior for board in boards for one in board.places if one.model == model]
        )
        for model in first.models
    }
    rules = first.ranking
    ranking = _paired(boards, posteriors) if first.scope == "population" else None
    if ranking is None:
        ranking = rank(
            posteriors,
            rules.ties,
            rules.confidence,
            numbering=rules.numbering,
            seed=rules.seed,
        )
    like = first.places[0].interval
    return Leaderboard(
        task=f"mean of {len(boards)} tasks",
        tasks=tuple(board.task for board in boards),
        n_questions=sum(board.n_questions for board in boards),
        level=first.level,
        ranking=ranking,
        places=places_of(ranking, posteriors, {}, first.level, like.method),
    )


def _check(boards: Sequence[Leaderboard]) -> None:
    tasks = [board.task for board in boards]
    if len(set(tasks)) < max(2, len(tasks)):
        raise InvalidInputError.of("boards", "be of at least two different tasks", tasks)
    first = boards[0]
    for board in boards[1:]:
        if set(board.models) != set(first.models):
            rule = f"have the models of {first.task}"
            raise InvalidInputError.of("boards", rule, f"{', '.join(board.models)}: {board.task}")
        if _rules(board) != _rules(first):
            rule = "be made by the same rules"
            raise InvalidInputError.of("boards", rule, [_rules(first), _rules(board)])


def _rules(board: Leaderboard) -> tuple[object, ...]:
    of = board.ranking
    return (board.level, of.scope, of.ties, of.numbering, of.confidence, of.seed)


def _paired(boards: Sequence[Leaderboard], posteriors: dict[str, Posterior]) -> Ranking | None:
    """Rank in scope "population", None where the questions of some task cannot be paired."""
    rules = boards[0].ranking
    names = list(posteriors)
    mu = np.array([posteriors[name].mu for name in names])
    sigma = np.array([posteriors[name].sigma for name in names])
    bounds = posteriors[names[0]].bounds
    order, levelled = best_first(mu, sigma, _ROUNDING * (bounds[1] - bounds[0]))
    models = tuple(names[i] for i in order)
    shared = []
    for board in boards:
        places = {one.model: one.posterior for one in board.places}
        found = SharedQuestions.of([places[model] for model in models])
        if found is None:
            return None
        shared.append(found)
    z = _separations(shared, levelled)
    numbers = len(models) * sum(board.n_questions for board in boards)
    draws = int(np.clip(_QUESTIONS_DRAWN // numbers, _FEWEST, _DRAWS))
    # a stream of its own for every task: the seed of task t is drawn from the seed
    seeds = np.random.SeedSequence(rules.seed).generate_state(len(shared), np.uint64).tolist()
    scores: FloatArray = np.mean(
        [task.draw(draws, seed) for task, seed in zip(shared, seeds, strict=True)], axis=0
    )
    counted = count_ranks(scores)
    low, high = rank_interval(counted.distribution, rules.confidence)
    places_from_1 = np.arange(1.0, len(models) + 1.0)
    best = [posteriors[model] for model in models]
    return Ranking(
        models=models,
        ranks=read_only(
            numbered(tie_groups(z, rules.ties, rules.threshold), rules.numbering), np.float64
        ),
        mu=read_only(mu[order], np.float64),
        sigma=read_only(sigma[order], np.float64),
        z=read_only(z, np.float64),
        p_best=read_only(counted.distribution[:, 0], np.float64),
        expected_rank=read_only((counted.distribution * places_from_1).sum(axis=1), np.float64),
        rank_low=read_only(low, np.float64),
        rank_high=read_only(high, np.float64),
        rank_distribution=read_only(counted.distribution, np.float64),
        p_greater=read_only(counted.greater, np.float64),
        ties=rules.ties,
        numbering=rules.numbering,
        confidence=rules.confidence,
        threshold=rules.threshold,
        quantity=best[0].quantity,
        scope="population",
        draws=draws,
        seed=rules.seed,
        mc_error=float(np.sqrt(counted.worst_variance * draw_variance(draws, best))),
        paired=True,
        note=joined_notes(task.note for task in shared),
    )


def _separations(shared: Sequence[SharedQuestions], levelled: FloatArray) -> FloatArray:
    """Return z of the mean difference of every two models; 0 where it favours the lower one."""
    found = [task.differences() for task in shared]
    difference = np.mean([one for one, _ in found], axis=0)
    sd = np.sqrt(np.sum([sd**2 for _, sd in found], axis=0)) / len(found)
    distance = np.maximum(difference * np.sign(levelled[:, None] - levelled), 0.0)
    certain = np.where(distance > 0.0, np.inf, 0.0)
    found_z = np.divide(distance, sd, out=certain, where=(sd > 0.0) & (distance > 0.0))
    return np.asarray(found_z)
