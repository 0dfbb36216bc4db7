"""`lm-eval-bayes study rank`: the leaderboard of models by other rules than that of `rank`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from lm_eval_bayes._util.text import NO_VALUE, first_names, format_score
from lm_eval_bayes.cli.screens.boards import show_ranks
from lm_eval_bayes.cli.screens.layout import Column, Form, say_sentence, say_table
from lm_eval_bayes.cli.ui.options import IntervalOptions, Json, option, prints_tables
from lm_eval_bayes.cli.ui.output import say_each, say_json, warn_notes
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.board import Board
    from lm_eval_bayes.analysis.other_rankings import ScorioRanking
    from lm_eval_bayes.runs.task_run import SavedRuns


@prints_tables
def command(
    runs: Runs,
    *,
    ties: Annotated[
        Literal["simultaneous", "adjacent", "none"],
        option(
            None,
            "simultaneous: that of `rank`, all pairs at once. adjacent, the paper's rule: a "
            "model shares the rank of the next better one if z is small. none: no ties.",
        ),
    ] = "simultaneous",
    method: Annotated[
        str | None,
        option(
            "NAME",
            "Also rank by a function of scorio on the same outcomes: bradley_terry, elo, "
            "plackett_luce, rasch, borda, …; arguments after a colon, as in pass_at_k:k=2. Needs "
            "lm-eval-bayes[scorio].",
        ),
    ] = None,
    shared: Annotated[
        bool,
        option(
            None,
            "Also show scores under a prior that the models share, which learns from all of "
            "them how far they are apart.",
            "--shared",
        ),
    ] = False,
    paper: Annotated[
        bool,
        option(
            None,
            "Only show ranks with ties | without, tasks side by side, by the paper's rules: "
            "bayes@N with the uniform prior, and ties of neighbours.",
            "--paper",
        ),
    ] = False,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Rank models by other rules than `rank`.

    The screen is that of `rank` with a column for every other rule. Sets of ranks and
    distinguishable pairs do not depend on these rules.

    The paper's rule (--ties adjacent) compares neighbours and has no guarantee for all pairs: the
    first and the last model of a long group may differ.

    \b
    Examples:
      lm-eval-bayes study rank runs/* --ties adjacent
      lm-eval-bayes study rank runs/* --shared
      lm-eval-bayes study rank runs/* --method bradley_terry
    """
    from lm_eval_bayes.analysis.board import mean_of_common, task_board

    spec = intervals.spec()
    if paper and (method or shared or ties == "none" or spec.scope != "benchmark"):
        rule = "be given without other rules of ranking, and in scope benchmark"
        raise InvalidInputError.of("--paper", "conflict", rule, "other options")
    saved = reading.read(runs)
    if paper:
        _show_paper_table(saved, as_json)
        return
    boards = [task_board(saved.of_task(name), spec, ties=ties) for name in saved.tasks]
    overall, left_out = mean_of_common(boards, saved.models)
    of_scorio = {} if method is None else _rank_by_scorio(saved, boards, method)
    if as_json:
        content = {
            "leaderboards": [board.leaderboard for board in boards],
            "overall": overall and overall.leaderboard,
            "warnings": saved.warnings,
        }
        say_json(content | ({"scorio": list(of_scorio.values())} if method else {}))
        return
    form = Form.of_output()
    shown = [*boards] if overall is None or of_scorio else [overall, *boards * form.verbose]

    def show(board: Board) -> None:
        _show(board, shared, of_scorio.get(board.title), form)

    say_each(shown, show, lambda board: board.title)
    if left_out and not of_scorio:
        say_sentence(
            f"Left out of the mean: {first_names(left_out)}, which not every model has.", form
        )
    notes = [(board.title, board.leaderboard.notes) for board in shown]
    if shared:
        priors = [(board.title, board.leaderboard.shared) for board in shown]
        notes += [(title, (prior.note,)) for title, prior in priors if prior and prior.note]
    notes += [(task, ranking.notes) for task, ranking in of_scorio.items()]
    warn_notes((task, (), note) for task, of_board in notes for note in of_board)


def _rank_by_scorio(
    saved: SavedRuns, boards: Sequence[Board], method: str
) -> dict[str, ScorioRanking]:
    """Return the ranking of every task by a function of scorio."""
    from lm_eval_bayes.analysis.other_rankings import rank_by_scorio

    return {
        board.title: rank_by_scorio(
            *(saved.of_task(board.title), method, board.leaderboard.ranking),
            seed=board.leaderboard.spec.seed,
        )
        for board in boards
    }


def _show(board: Board, with_shared: bool, scorio: ScorioRanking | None, form: Form) -> None:
    """Show the screen of `rank` with the columns and the sentences of other rules."""
    columns, sentences = [], []
    ranking = board.leaderboard.ranking
    if ranking.ties != "simultaneous":
        columns.append(Column("rank", [f"{row.rank:g}" for row in board.leaderboard.rows]))
        rule = "only equal scores tie"
        if ranking.ties == "adjacent":
            rule = f"a model ties with the next better one if z is below {ranking.threshold:.3f}"
        sentences.append(f"rank: {rule}.")
    if with_shared and (shared := board.leaderboard.shared):
        means = {row["model"]: row["mu"] for row in shared.rows()}
        columns.append(Column("shared prior", [format_score(means[m]) for m in board.models]))
        if shared.tau is not None:
            ends = f"{shared.tau_low:.2f} to {shared.tau_high:.2f}"
            sentences.append(
                f"shared prior: the logits of the scores have a scale of {shared.tau:.2f} ({ends})."
            )
    if scorio is not None:
        rows = {row.model: row for row in scorio.rows}
        columns.append(Column(scorio.method, [f"{rows[m].rank:g}" for m in board.models]))
        columns.append(Column("value", [f"{rows[m].score:.4g}" for m in board.models]))
        arguments = "".join(f", {key}={value}" for key, value in scorio.arguments.items())
        tau_b = NO_VALUE if scorio.tau_b is None else f"{scorio.tau_b:.3f}"
        sentences.append(
            f"{scorio.method}{arguments} of scorio {scorio.version}: Kendall's tau_b with the "
            f"order by score is {tau_b}."
        )
    show_ranks(board, form, columns)
    for sentence in sentences:
        say_sentence(sentence, form)


def _show_paper_table(saved: SavedRuns, as_json: bool) -> None:
    """Show the ranks of all tasks in the layout of [Hariri 2026, Table 2]."""
    from lm_eval_bayes.analysis.other_rankings import paper_table

    table = paper_table({task: saved.of_task(task) for task in saved.tasks})
    if as_json:
        say_json({"paper": table, "warnings": saved.warnings})
        return
    rows = []
    for row in table.rows:
        pairs = (row.ranks[task] for task in table.tasks)
        cells = (NO_VALUE if r is None else f"{r.with_ties} | {r.without_ties}" for r in pairs)
        rows.append((row.model, *cells))
    sentence = (
        "Ranks by bayes@N with ties | without: a model ties with the next better one if z is below "
        f"{table.threshold:.3f}."
    )
    say_sentence(sentence, Form.of_output())
    say_table("", ["model", *table.tasks], rows)
