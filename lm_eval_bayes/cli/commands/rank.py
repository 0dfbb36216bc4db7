"""`lm-eval-bayes rank`: the leaderboard, with its ties and its doubts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from lm_eval_bayes._util.text import (
    format_duration,
    format_interval,
    format_large,
    format_mean_sd,
    format_range,
    interval_label,
    plural,
    scope_label,
)
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.output import say, say_json, say_table, warn
from lm_eval_bayes.cli.ui.reading import (
    Dedupe,
    Filter,
    Interval,
    IntervalKind,
    Json,
    Level,
    Metric,
    Regrade,
    Runs,
    Scope,
    ScopeOption,
    Seed,
    Task,
    Ties,
    interval_spec,
    read,
)

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.leaderboard import Leaderboard
    from lm_eval_bayes.runs.task_run import SavedRuns


class Numbers(str, Enum):
    """How ranks are counted after a tie."""

    dense = "dense"
    competition = "competition"
    fractional = "fractional"


def command(
    runs: Runs,
    task: Task = None,
    metric: Metric = None,
    filter: Filter = None,
    ties: Annotated[
        Ties,
        typer.Option(
            help="Whom a model is compared with to share a rank: the best of the group (leader), "
            "its upper neighbour (adjacent, the paper), all of the group (pairwise), or nobody."
        ),
    ] = Ties.leader,
    numbering: Annotated[
        Numbers,
        typer.Option(help="Ranks after a tie of two: 1, 2, 2, 3 or 1, 2, 2, 4 or 1, 2.5, 2.5, 4."),
    ] = Numbers.dense,
    confidence: Annotated[
        float,
        typer.Option(
            metavar="P",
            help="Two models tie where the better one is better with less than this, one-sided; "
            "at least 0.5. Also what the rank intervals hold.",
        ),
    ] = 0.95,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Show P(row > column) for every two models.")
    ] = False,
    dedupe: Dedupe = False,
    regrade: Regrade = False,
    level: Level = 0.95,
    scope: ScopeOption = Scope.benchmark,
    interval: Interval = IntervalKind.exact,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Rank models, with ties where they cannot be told apart.

    By the posterior mean of hbayes@N on the same questions.

    Beside the ranks stand what they are worth: the probability of being the best, and the
    ranks that a model may have. A model ties with the best of its group where the data do
    not tell the two apart. The paper's rule compares neighbours (--ties adjacent), which chains:
    the ends of a long group may be far apart.

    Several tasks get one leaderboard each, and one on the mean that counts each task the same,
    over the tasks that all models have.

    \b
    Examples:
      lm-eval-bayes rank runs/*
      lm-eval-bayes rank runs/qwen runs/phi runs/llama --ties pairwise --pairs --scope population
    """
    from lm_eval_bayes.analysis.leaderboard import leaderboard
    from lm_eval_bayes.stats.ranking.rank import check_confidence

    spec = interval_spec(level, seed, scope, interval)
    with named_as_options("confidence"):
        check_confidence(confidence)
    found = read(runs, task=task, metric=metric, filter=filter, dedupe=dedupe, regrade=regrade)
    boards = [
        leaderboard(
            found.of_task(name),
            spec,
            ties=ties.value,
            numbering=numbering.value,
            confidence=confidence,
        )
        for name in found.tasks
    ]
    overall, told = _overall(found, boards)
    if as_json:
        say_json(
            {
                "leaderboards": [board.to_dict() for board in boards],
                "overall": None if overall is None else overall.to_dict(),
                "warnings": list(found.warnings),
            }
        )
        return
    shown = boards if overall is None else [*boards, overall]
    for at, board in enumerate(shown):
        if at:
            say()
        _show(board, interval.value)
        if pairs:
            _show_pairs(board)
    say()
    counted = dict.fromkeys(what for board in boards for what in board.counted)
    say(f"counted: {'; '.join(counted)}")
    say(_rules(shown[0]))
    if told:
        say(told)
    for board in shown:
        for note in board.notes:
            warn(f"note: {board.task}: {note}")


def _overall(
    found: SavedRuns, boards: Sequence[Leaderboard]
) -> tuple[Leaderboard | None, str | None]:
    """Return the leaderboard of the tasks that all models have, and what to say of the others."""
    from lm_eval_bayes.analysis.leaderboard import overall_leaderboard

    if len(boards) < 2 or len(found.models) < 2:
        return None, None
    everybody = set(found.models)
    common = [board for board in boards if set(board.models) == everybody]
    if len(common) < 2:
        return None, "no leaderboard of all tasks: fewer than two of them have all models"
    left = [board.task for board in boards if board not in common]
    told = f"not every model has {', '.join(left)}: left out of the mean" if left else None
    return overall_leaderboard(common), told


def _show(board: Leaderboard, method: str) -> None:
    from lm_eval_bayes._util.text import format_probability

    title = (
        f"{board.task}: {plural(board.n_questions, 'question')}, about {scope_label(board.scope)}"
    )
    per_task = len(board.tasks) == 1
    ranks = f"ranks ({100 * board.ranking.confidence:g}%)"
    head = ["rank", "model", "mean ± sd", interval_label(board.level, method), "P(best)", ranks]
    head += ["N", "tokens", "time"] if per_task else []
    rows = []
    for one in board.rows:
        line = [
            f"{one.rank:g}",
            one.model,
            format_mean_sd(one.posterior.mu, one.posterior.sigma),
            format_interval(one.interval),
            format_probability(one.p_best),
            format_range((int(one.rank_low), int(one.rank_high))),
        ]
        line += (
            [format_range(one.n_range), format_large(one.tokens), format_duration(one.seconds)]
            if per_task
            else []
        )
        rows.append(line)
    say_table(title, head, rows)


def _show_pairs(board: Leaderboard) -> None:
    from lm_eval_bayes._util.text import format_probability

    say()
    rows = [
        [model, *("-" if i == j else format_probability(p) for j, p in enumerate(row))]
        for i, (model, row) in enumerate(zip(board.models, board.p_greater.tolist(), strict=True))
    ]
    say_table(f"{board.task}: P(row > column)", ["", *board.models], rows)


def _rules(board: Leaderboard) -> str:
    """Say by which rules ranks came about."""
    of = board.ranking
    with_whom = {
        "adjacent": "its upper neighbour",
        "leader": "the best of its group",
        "pairwise": "every one of its group",
    }
    if of.ties == "none":
        return f"ranks: no ties but of equal means; {of.numbering} numbering"
    return (
        f"ranks: a model ties with {with_whom[of.ties]} where z is below {of.threshold:.3f} "
        f"({100 * of.confidence:g}%, one-sided); {of.numbering} numbering"
    )
