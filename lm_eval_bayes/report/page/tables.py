"""The page's tables: scores of models, pairs of models, and models by questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from markupsafe import Markup

from lm_eval_bayes._util.text import format_score, plural, shorten_names
from lm_eval_bayes.analysis.board import Board
from lm_eval_bayes.analysis.comparability import short_text
from lm_eval_bayes.analysis.leaderboard import LeaderboardRow
from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.report.page import figures
from lm_eval_bayes.report.page.svg import round_range
from lm_eval_bayes.report.page.text import TruncatedText, name, short_names, truncate
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    Interval,
    IntervalSpec,
    SettingsPosterior,
    Summary,
    pair_posterior,
)

#: Cells of all questions of a page, and the fewest and the most questions of a panel.
_MAX_CELLS, _MIN_QUESTIONS, _MAX_QUESTIONS = 8000, 10, 300
#: Questions that are columns; more are rows, of which so many are shown at once.
COLUMNS = 40
#: Characters of all question texts of a page, and limits for a single one.
_MAX_CHARACTERS, _MIN_TEXT, _MAX_TEXT = 1_200_000, 300, 4000
#: Characters of a question's text in its row.
_LABEL_LENGTH = 60
#: The most models of a staircase of pairs.
_MAX_PAIRED = 60
#: Characters of a name in a heading, and of a setting.
MAX_HEADING = 30


# -- models --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreRow:
    """A model's row: numbers and figures, and which models it is distinguishable from."""

    of_board: LeaderboardRow
    short: str
    bar: Markup
    settings: Markup
    strip: Markup
    may_be_first: bool
    apart: str
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class ScoreTable:
    """The scores of models, best first, their axis, and the tasks where there are several."""

    rows: tuple[ScoreRow, ...]
    axis: Markup
    tasks: tuple[str, ...]
    compares: bool


def score_table(
    board: Board, settings: Mapping[str, SettingsPosterior] = MappingProxyType({})
) -> ScoreTable:
    """Return the scores of models with their bars and ranks.

    `settings` are the scores over settings, by model, of those that have several.
    """
    rows, n = board.leaderboard.rows, len(board.models)
    ends = [interval for pair in board.intervals for interval in pair if interval is not None]
    shown = figures.ends_of(ends)
    for of_model in settings.values():
        shown += [*figures.ends_of([of_model.like["benchmark"]]), *of_model.scores.tolist()]
    axis = figures.Axis.around(shown, rows[0].posterior.bounds)
    short = short_names(board.models)
    differs = board.leaderboard.ranking.distinguishable
    of_tasks = [{r.model: r.mu for r in task.leaderboard.rows} for task in board.tasks]
    first = {board.models[0], *board.may_be_first}
    table = []
    for i, (row, pair) in enumerate(zip(rows, board.intervals, strict=True)):
        low, high = int(row.rank_low), int(row.rank_high)
        table.append(
            ScoreRow(
                of_board=row,
                short=short[i],
                bar=figures.interval_bar(axis, row.mu, *pair),
                settings=figures.settings_strip(axis, settings.get(row.model)),
                strip=figures.rank_strip(low, high, n) if n > 1 else Markup(""),
                may_be_first=n > 1 and row.model in first,
                apart=" ".join(str(j) for j in range(n) if differs[i, j]),
                tasks=tuple(format_score(scores[row.model]) for scores in of_tasks),
            )
        )
    tasks = tuple(name(task.leaderboard.task) for task in board.tasks)
    return ScoreTable(tuple(table), figures.axis_above(axis), tasks, n > 1)


def short_ends(interval: Interval | Summary) -> str:
    """Return the ends of an interval, for a cell."""
    return f"{format_score(interval.low)}–{format_score(interval.high)}"


@dataclass(frozen=True)
class Pairs:
    """A staircase of all pairs, or of two models their difference.

    Attributes
    ----------
    stairs : tuple of (str, tuple of (bool, str))
        For every model its name, and for every worse one whether they are distinguishable and
        the difference as text.
    differences : tuple of (str, str, str, Markup)
        On which questions, the difference, its interval and its bar.
    axis : Markup
        The axis of the differences.
    """

    stairs: tuple[tuple[str, tuple[tuple[bool, str], ...]], ...] = ()
    differences: tuple[tuple[str, str, str, Markup], ...] = ()
    axis: Markup | None = None


def pairs_of(board: Board, level: float) -> Pairs | None:
    """Return the pairs of models; None for a single one, and for more than a staircase shows."""
    rows = board.leaderboard.rows
    names = shorten_names(short_names(board.models), MAX_HEADING)
    if len(rows) == 2 and not board.tasks:
        return _difference(board, level)
    if not 1 < len(rows) <= _MAX_PAIRED:
        return None
    differs = board.leaderboard.ranking.distinguishable
    stairs = (
        (
            names[i],
            tuple(
                (bool(differs[i, j]), f"{names[i]} − {names[j]}: {_signed(row.mu - rows[j].mu)}")
                for j in range(i + 1, len(rows))
            ),
        )
        for i, row in enumerate(rows)
    )
    return Pairs(tuple(stairs))


def _difference(board: Board, level: float) -> Pairs:
    posteriors = []
    for scope in board.scopes:
        of_model = {row.model: row.posterior for row in board.scopes[scope].rows}
        posteriors.append(pair_posterior(*(of_model[model] for model in board.models)))
    intervals = [posterior.interval_by(IntervalSpec(level)) for posterior in posteriors]
    low = min(0.0, *(interval.low for interval in intervals))
    high = max(0.0, *(interval.high for interval in intervals))
    ends = round_range(low, high, posteriors[0].bounds)
    axis = figures.Axis(*ends)
    rows = (
        (
            where,
            _signed(posterior.mu),
            f"{_signed(interval.low)} to {_signed(interval.high)}",
            figures.interval_bar(axis, posterior.mu, interval, None, zero=True),
        )
        for where, posterior, interval in zip(
            ("these questions", "other questions of the kind"), posteriors, intervals, strict=False
        )
    )
    return Pairs(differences=tuple(rows), axis=figures.axis_above(axis))


def _signed(value: float) -> str:
    text = format_score(value)
    return text.replace("-", "−") if text.startswith("-") else f"+{text}"


# -- models by questions -------------------------------------------------------------------------


@dataclass(frozen=True)
class QuestionCell:
    """A model's trials of a question: their count as text and in short, and the posterior.

    `right` and `of` are the numbers of right trials and of all; of scores the mean, and "".
    """

    right: str
    of: str
    counted: str
    mu: float
    sigma: float
    shade: int


@dataclass(frozen=True)
class QuestionRow:
    """A question with the cells of all models in the order of the board."""

    number: int
    name: str
    label: str
    text: TruncatedText
    total: str
    cells: tuple[QuestionCell, ...]
    first: bool


@dataclass(frozen=True)
class QuestionTable:
    """The questions of a panel, easy to hard, and which are shown; "" if all are."""

    rows: tuple[QuestionRow, ...]
    selection: str
    totals: tuple[str, ...]

    @property
    def as_columns(self) -> bool:
        """Whether the questions are columns, and the models rows."""
        return len(self.rows) <= COLUMNS


def question_table(panel: TaskPanel, data: ReportData) -> QuestionTable:
    """Return the questions of a panel with the trials of every model.

    If there are more questions than fit into a page, those are shown on which models differ
    most; for a single model the hardest. Of many the 40 that models differ on most are first.
    """
    scores, runs = panel.question_scores, panel.runs
    n_max = max(_MIN_QUESTIONS, min(_MAX_QUESTIONS, _MAX_CELLS // len(data.panels) // len(runs)))
    selected, selection = scores.select(n_max)
    first = set(scores.select(COLUMNS)[0].tolist())
    n_texts = sum(min(other.board.n_questions, n_max) for other in data.panels)
    text_length = max(_MIN_TEXT, min(_MAX_TEXT, _MAX_CHARACTERS // max(1, n_texts)))
    rows = []
    for question in selected.tolist()[::-1]:
        positions = [int(of_run[question]) for of_run in scores.rows]
        text = _question_text(runs, positions)
        posteriors = zip(scores.mu[question], scores.sigma[question], strict=True)
        cells = tuple(
            _cell(run, position, float(mu), float(sigma), panel.bounds)
            for run, position, (mu, sigma) in zip(runs, positions, posteriors, strict=True)
        )
        rows.append(
            QuestionRow(
                number=question + 1,
                name=name(runs[0].question_name(question)),
                label=name(short_text(text, _LABEL_LENGTH)),
                text=truncate(text, text_length),
                total=_total([cell.right for cell in cells], [cell.of for cell in cells]),
                cells=cells,
                first=question in first,
            )
        )
    totals = (
        _total([row.cells[i].right for row in rows], [row.cells[i].of for row in rows])
        for i in range(len(runs))
    )
    return QuestionTable(tuple(rows), selection, tuple(totals))


def _cell(
    run: TaskRun, position: int, mu: float, sigma: float, bounds: tuple[float, float]
) -> QuestionCell:
    counts = run.outcomes.counts[position]
    n = int(run.outcomes.n_trials[position])
    if run.binary and run.outcomes.weights[0] < run.outcomes.weights[1]:
        right, share = str(int(counts[1])), int(counts[1]) / max(n, 1)
        of, counted = str(n), f"{counts[1]:,} of {n:,} right"
    else:
        mean = float(run.outcomes.mean_score(position)) if n else mu
        share = (mean - bounds[0]) / (bounds[1] - bounds[0])
        right, of, counted = f"{mean:.2f}" if n else "–", "", _counted(run, position)
    # none, all, and thirds of what lies between
    shade = 0 if share <= 0.0 else 4 if share >= 1.0 else 1 + min(2, int(3.0 * share))
    return QuestionCell(right, of, counted, mu, sigma, shade)


def _total(right: Sequence[str], of: Sequence[str]) -> str:
    """Return the sum of right trials of all; of scores their mean."""
    if all(of):
        return f"{sum(map(int, right)):,}/{sum(map(int, of)):,}"
    numbers = [float(mean) for mean in right if mean != "–"]
    return f"{sum(numbers) / len(numbers):.2f}" if numbers else "–"


def _question_text(runs: Sequence[TaskRun], positions: Sequence[int]) -> str:
    """Return the question's text from the first run that has it; "" if none has."""
    texts = (
        run.questions[position]
        for run, position in zip(runs, positions, strict=True)
        if run.questions
    )
    return next(filter(None, texts), "")


def _counted(run: TaskRun, position: int) -> str:
    """Return the trials of a question that are not right or wrong, as text."""
    if run.scored:
        n = plural(int(run.outcomes.n_trials[position]), "trial")
        return f"mean {run.outcomes.mean_score(position):.3g} of {n}"
    counts, weights = run.outcomes.counts[position], run.outcomes.weights
    parts = [
        f"{count:,} × {weight:g}"
        for count, weight in zip(counts.tolist(), weights.tolist(), strict=True)
        if count
    ]
    return ", ".join(parts) or "no trial"
