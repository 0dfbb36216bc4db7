"""`lm-eval-bayes study rank`: the leaderboard of models by other rules than that of `rank`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from lm_eval_bayes._util.text import (
    NO_VALUE,
    P_BEST,
    format_duration,
    format_interval,
    format_large,
    format_mean_sd,
    format_probability,
    format_range,
    format_score,
    interval_label,
    plural,
    scope_label,
)
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.options import (
    IntervalOptions,
    Json,
    option,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import (
    say,
    say_each,
    say_json,
    say_prose,
    say_protocols,
    say_records,
    say_table,
    warn_notes,
)
from lm_eval_bayes.cli.ui.prior import PriorOptions, say_effects
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.leaderboard import Leaderboard, LeaderboardRow
    from lm_eval_bayes.analysis.scorio_ranking import ScorioRanking, ScorioRow
    from lm_eval_bayes.runs.task_run import SavedRuns
    from lm_eval_bayes.stats import FloatArray, SharedScores


#: Which models of a group a model is compared with before it shares their rank.
TieRule: TypeAlias = Literal["simultaneous", "adjacent", "none"]


@dataclass(frozen=True)
class RankingRules:
    """Other rules of ranking than that of `rank`."""

    ties: Annotated[
        TieRule,
        typer.Option(
            help="simultaneous: all pairs are compared at once; a model ranks one below the "
            "lowest-ranked model that is better. adjacent, the paper's rule: a model shares the "
            "rank of the next better one if z is small, whatever the number of models. none: no "
            "ties."
        ),
    ] = "simultaneous"
    method: Annotated[
        str | None,
        option(
            "NAME",
            "Also rank by a function of scorio on the same outcomes: bradley_terry, elo, "
            "plackett_luce, rasch, borda, …; arguments after a colon, as in pass_at_k:k=2. Needs "
            "lm-eval-bayes[scorio].",
        ),
    ] = None
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Also show scores and P(row > column) under a prior that the models share, which "
            "learns from all of them how far they are apart.",
        ),
    ] = False
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            help="Only show ranks with ties | without, tasks side by side, by the paper's rules: "
            "bayes@N with the uniform prior, and ties of neighbours.",
        ),
    ] = False

    def check(self, pairs: bool, scope: str) -> None:
        """Refuse other rules beside those of the paper.

        Raises
        ------
        InvalidInputError
            If there are some.
        """
        others = (self.method, self.shared, pairs, self.ties == "none", scope != "benchmark")
        if self.paper and any(others):
            rule = "be given without other rules of ranking, and in scope benchmark"
            raise InvalidInputError.of("--paper", "conflict", rule, "other options")


@prints_tables
def command(
    runs: Runs,
    *,
    rules: RankingRules,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Show P(row > column) for every pair of models.")
    ] = False,
    priors: PriorOptions,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Rank models by other rules than `rank`.

    The paper's rule (--ties adjacent) compares neighbours and has no guarantee for all pairs; it
    chains, so that the first and the last model of a long group may differ.

    With --shared the logits of the scores have a prior that is common to the models, and whose
    scale is learned from the board. JSON has P(row > column) under both. Ranks and their sets do
    not depend on it.

    \b
    Examples:
      lm-eval-bayes study rank runs/* --ties adjacent
      lm-eval-bayes study rank runs/* --shared
      lm-eval-bayes study rank runs/* --method bradley_terry
    """
    from lm_eval_bayes.analysis.leaderboard import leaderboard

    spec = intervals.spec()
    rules.check(pairs, spec.scope)
    method, shared = rules.method, rules.shared
    priors.strength()
    if method is not None and priors.prior:
        raise InvalidInputError.of("--prior", "conflict", "be left out with --method", method)
    saved = reading.read(runs)
    informed = priors.apply(saved.runs, reading, seed=spec.seed)
    saved = replace(saved, runs=informed.runs)
    if rules.paper:
        _show_paper_table(saved, as_json)
        return
    boards = [leaderboard(saved.of_task(name), spec, ties=rules.ties) for name in saved.tasks]
    overall, overall_note = _overall(saved, boards)
    effects = informed.effects(spec)
    others = [] if method is None else _rank_by_scorio(saved, boards, method)
    if as_json:
        content = {
            "leaderboards": boards,
            "overall": overall,
            "priors": effects,
            "warnings": saved.warnings,
        }
        say_json(content if method is None else {**content, "scorio": others})
        return
    all_boards = boards if overall is None else [*boards, overall]
    say_each(all_boards, partial(_show, pairs=pairs, shared=shared))
    say_effects(effects, spec)
    for other in others:
        say()
        _show_scorio(other)
    say()
    counted = dict.fromkeys(kind for board in boards for kind in board.counted)
    say_prose(f"counted: {'; '.join(counted)}")
    say_protocols(protocol for board in boards for protocol in board.protocols)
    if len(saved.models) > 1:
        say_prose(_tie_rule(all_boards[0]))
    if overall_note:
        say_prose(overall_note)
    notes = [(board.task, board.notes) for board in all_boards]
    if shared:
        notes += [(b.task, (b.shared.note,)) for b in all_boards if b.shared and b.shared.note]
    notes += [(other.task, other.notes) for other in others]
    warn_notes((task, (), note) for task, of_board in notes for note in of_board)


def _rank_by_scorio(
    saved: SavedRuns, boards: Sequence[Leaderboard], method: str
) -> list[ScorioRanking]:
    """Return the ranking of every task by a function of scorio."""
    from lm_eval_bayes.analysis.scorio_ranking import rank_by_scorio

    with named_as_options("method"):
        return [
            rank_by_scorio(saved.of_task(board.task), method, board.ranking, seed=board.spec.seed)
            for board in boards
        ]


def _show_scorio(other: ScorioRanking) -> None:
    arguments = "".join(f", {key}={value}" for key, value in other.arguments.items())
    title = f"{other.task}: by {other.method}{arguments} (scorio {other.version})"
    columns: dict[str, Callable[[ScorioRow], object]] = {
        "rank": lambda row: f"{row.rank:g}",
        "model": lambda row: row.model,
        "score": lambda row: f"{row.score:.4g}",
        "rank by mean": lambda row: f"{row.mean_rank:g}",
    }
    say_records(title, other.rows, columns)
    agreement = other.agreement
    named = (("tau_b", agreement.tau_b), ("spearman", agreement.spearman))
    values = [f"{name} {NO_VALUE if value is None else f'{value:.3f}'}" for name, value in named]
    far = f"largest displacement {agreement.largest_displacement:g}"
    say_prose(f"  with the order by mean: {', '.join([*values, far])}")


def _show_paper_table(saved: SavedRuns, as_json: bool) -> None:
    """Show the ranks of all tasks in the layout of [Hariri 2026, Table 2]."""
    from lm_eval_bayes.analysis.paper_table import paper_table

    table = paper_table({task: saved.of_task(task) for task in saved.tasks})
    if as_json:
        say_json({"paper": table, "warnings": saved.warnings})
        return
    rows = []
    for row in table.rows:
        pairs = (row.ranks[task] for task in table.tasks)
        cells = (NO_VALUE if r is None else f"{r.with_ties} | {r.without_ties}" for r in pairs)
        rows.append((row.model, *cells))
    title = "ranks by bayes@N: with ties at 95% | without"
    say_table(title, ["model", *table.tasks], rows)
    say()
    say_prose(
        f"ranks: a model ties with the next better model if z is below {table.threshold:.3f} "
        "(95%, one-sided)"
    )


def _overall(
    saved: SavedRuns, boards: Sequence[Leaderboard]
) -> tuple[Leaderboard | None, str | None]:
    """Return the leaderboard of the tasks that all models have, and a note on the other tasks."""
    from lm_eval_bayes.analysis.leaderboard import overall_leaderboard

    if len(boards) < 2 or len(saved.models) < 2:
        return None, None
    common = [board for board in boards if set(board.models) == set(saved.models)]
    if len(common) < 2:
        return None, "no leaderboard of all tasks: fewer than two of them have all models"
    others = [board.task for board in boards if board not in common]
    note = f"left out of the mean: {', '.join(others)}, which not every model has"
    return overall_leaderboard(common), note if others else None


def _show(board: Leaderboard, pairs: bool, shared: bool) -> None:
    scope = scope_label(board.ranking.scope, board.ranking.n_clusters)
    title = f"{board.task}: {plural(board.n_questions, 'question')}, for {scope}"
    confidence = f"{100 * board.ranking.confidence:g}%"
    columns: dict[str, Callable[[LeaderboardRow], object]] = {
        "rank": lambda row: f"{row.rank:g}",
        "model": lambda row: row.model,
        "mean ± sd": lambda row: format_mean_sd(row.posterior.mu, row.posterior.sigma),
        interval_label(board.spec.level, board.spec.method): lambda row: format_interval(
            row.interval
        ),
    }
    if board.compares:
        columns |= {
            P_BEST: lambda row: format_probability(row.p_best),
            f"ranks ({confidence})": lambda row: format_range(
                (int(row.rank_low), int(row.rank_high))
            ),
        }
    if len(board.tasks) == 1:
        columns |= {
            "N": lambda row: format_range(row.n_range),
            "tokens": lambda row: format_large(row.tokens),
            "time": lambda row: format_duration(row.seconds),
        }
        if any(row.cost is not None for row in board.rows):
            columns["cost"] = lambda row: format_large(row.cost)
    say_records(title, board.rows, columns, optional=("cost", "time", "tokens", "N", P_BEST))
    if pairs:
        say()
        _show_pairs(f"{board.task}: P(row > column)", board.models, board.ranking.p_greater)
    if shared and board.shared is not None:
        say()
        _show_shared(board, board.shared)


def _show_pairs(title: str, models: Sequence[str], p_greater: FloatArray) -> None:
    """Show a table of all pairs; the models of its columns have the numbers of its rows."""
    rows = [
        [i + 1, model, *(NO_VALUE if i == j else format_probability(p) for j, p in enumerate(row))]
        for i, (model, row) in enumerate(zip(models, p_greater.tolist(), strict=True))
    ]
    say_table(title, ["", "model", *map(str, range(1, len(models) + 1))], rows)


def _show_shared(board: Leaderboard, shared: SharedScores) -> None:
    """Show the scores and the pairs under the prior that the models share."""
    rows = [
        (
            row["model"],
            format_mean_sd(row["mu"], row["sigma"]),
            f"{format_score(row['low'])} to {format_score(row['high'])}",
        )
        for row in shared.rows()
    ]
    head = ("model", "mean ± sd", interval_label(shared.level, "exact"))
    say_table(f"{board.task}: scores under a prior shared by the models", head, rows)
    if shared.tau is not None:
        say_prose(
            f"  scale of the models' logits: {shared.tau:.2f} ({shared.tau_low:.2f} to "
            f"{shared.tau_high:.2f})"
        )
    say()
    title = f"{board.task}: P(row > column) under the shared prior"
    _show_pairs(title, shared.models, shared.p_greater)


def _tie_rule(board: Leaderboard) -> str:
    """Return the rule of the ties as a sentence."""
    ranking = board.ranking
    confidence = f"{100 * ranking.confidence:g}%"
    if ranking.ties == "none":
        return "ranks: ties only for equal means"
    if ranking.ties == "simultaneous":
        above = f", |z| above {ranking.threshold:.3f}" if ranking.threshold else ""
        return (
            f"ranks: a model ranks one below the lowest-ranked model that is better; all pairs "
            f"compared at once with {confidence} confidence{above}"
        )
    return (
        f"ranks by the paper's rule: a model ties with the next better model if z is below "
        f"{ranking.threshold:.3f} ({confidence}, one-sided)"
    )
