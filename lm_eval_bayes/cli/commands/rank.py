"""`lm-eval-bayes rank`: the ranks that models may have, all pairs compared at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from lm_eval_bayes._util.text import first_names
from lm_eval_bayes.cli.screens.boards import show_pairs, show_ranks
from lm_eval_bayes.cli.screens.layout import Form, say_counted, say_next
from lm_eval_bayes.cli.ui.options import IntervalOptions, Json, option, prints_tables
from lm_eval_bayes.cli.ui.output import (
    say,
    say_each,
    say_json,
    warn_notes,
)
from lm_eval_bayes.cli.ui.prior import PriorOptions, say_effects
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.board import Board


@prints_tables
def command(
    runs: Runs,
    *,
    pairs: Annotated[
        bool, option(None, "Show which pairs of models are distinguishable.", "--pairs")
    ] = False,
    priors: PriorOptions,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Rank models, with the set of ranks that each may have.

    Models are sorted by the posterior mean of hbayes@N on the same questions. All pairs are
    compared at once: with 95% probability no pair is called distinguishable the wrong way, and the
    ranks of all models lie in their sets, however many models there are.

    With --prior the posteriors also use the trials of earlier runs of the same questions. Where
    their weight is learned, the models share its distribution, so that they are treated alike.

    If all models have several tasks in common, they are ranked by the mean over tasks, in which
    every task counts the same; --verbose shows every task too.

    \b
    Examples:
      lm-eval-bayes rank runs/*
      lm-eval-bayes rank runs/qwen runs/phi runs/llama --pairs --scope population
    """
    from lm_eval_bayes.analysis.board import mean_of_common, task_board

    spec = intervals.spec()
    priors.strength()
    saved = reading.read(runs)
    informed = priors.apply(saved.runs, reading, seed=spec.seed)
    saved = replace(saved, runs=informed.runs)
    boards = [task_board(saved.of_task(task), spec) for task in saved.tasks]
    leaderboards = [board.leaderboard for board in boards]
    overall, left_out = mean_of_common(boards, saved.models)
    effects = informed.effects(spec)
    if as_json:
        say_json(
            {
                "leaderboards": leaderboards,
                "overall": overall and overall.leaderboard,
                "pairs_over_settings": {b.leaderboard.task: b.n_over_settings for b in boards},
                "priors": effects,
                "warnings": saved.warnings,
            }
        )
        return
    form = Form.of_output()
    shown = [*boards] if overall is None else [overall, *boards] if form.verbose else [overall]

    def show(board: Board) -> None:
        show_ranks(board, form)
        if pairs and board.n_pairs:
            say()
            show_pairs(board, form)

    say_each(shown, show, lambda board: board.title)
    if left_out:
        say(f"left out of the mean: {first_names(left_out)}, which not every model has")
    say_effects(effects, spec)
    counted = (text for board in leaderboards for text in board.counted)
    say_counted(counted, (text for board in leaderboards for text in board.protocols), form)
    warn_notes(
        (board.leaderboard.task, (), note) for board in shown for note in board.leaderboard.notes
    )
    if overall is None:
        say_next(["lm-eval-bayes", "plan", *map(str, runs), *reading.words()])
    else:
        words = [*map(str, runs), *reading.words(), "--task", saved.tasks[0]]
        say_next(["lm-eval-bayes", "rank", *words], "one task")
