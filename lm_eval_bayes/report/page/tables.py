"""The page's tables: models by tasks, models by questions, and pairs of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_bayes._util.text import plural, shorten_names
from lm_eval_bayes.analysis.comparability import short_text
from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.analysis.summary import ALL_TASKS
from lm_eval_bayes.report.page.text import Scale, TruncatedText, name, short_names, truncate
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import Posterior

#: Number of shades of a heat map.
SHADES = 21
#: Cells of all heat maps of a page, and the fewest and the most questions of a panel.
_MAX_CELLS, _MIN_QUESTIONS, _MAX_QUESTIONS = 8000, 10, 300
#: Characters of all question texts of a page, and limits for a single one.
_MAX_CHARACTERS, _MIN_TEXT, _MAX_TEXT = 1_200_000, 300, 4000
#: Characters of a question's text in its row.
_LABEL_LENGTH = 90
#: Models of the table of pairs.
_MAX_PAIRED = 40
#: Characters of a name in a heat map; the style sheet would cut a longer one again.
_MAX_HEADING = 36


# -- models by tasks -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreColumn:
    """A column: heading, and description ("" for a single task)."""

    heading: str
    description: str


@dataclass(frozen=True)
class ScoreTable:
    """Columns, and for every model its name and posteriors (None where there is none)."""

    columns: tuple[ScoreColumn, ...]
    rows: tuple[tuple[str, tuple[Posterior | None, ...]], ...]


def score_table(data: ReportData) -> ScoreTable | None:
    """Return the table of models by tasks; None if there is a single task.

    Models are sorted by the first column, best first: the mean over questions of the first
    group, or the mean over tasks if there are no groups.
    """
    if len(data.tasks) < 2:
        return None
    columns: list[ScoreColumn] = []
    cells: list[Mapping[str, Posterior]] = []
    scope = data.spec.scope
    for group in dict.fromkeys(summary.group for summary in data.groups):
        by_model = {summary.model: summary for summary in data.groups if summary.group == group}
        n_tasks = len(next(iter(by_model.values())).tasks)
        for weighting, unit in (("size", "question"), ("equal", "task")):
            if group == ALL_TASKS and weighting == "size":
                continue
            heading = name(group) if group == ALL_TASKS else f"{name(group)}, by {unit}"
            description = f"mean of {n_tasks} tasks, every {unit} with the same weight"
            columns.append(ScoreColumn(heading, description))
            cells.append({m: s.means[weighting].learned[scope] for m, s in by_model.items()})
    for panel in data.panels:
        columns.append(ScoreColumn(name(panel.board.task), ""))
        cells.append({row.model: row.posterior for row in panel.board.rows})
    rows = [(model, tuple(column.get(model) for column in cells)) for model in data.models]
    rows.sort(key=lambda row: _sort_key(row[1]))
    return ScoreTable(tuple(columns), tuple((name(model), scores) for model, scores in rows))


def _sort_key(scores: Sequence[Posterior | None]) -> tuple[bool, float]:
    """Return a key that sorts the best row first, and rows without the first column last."""
    if scores[0] is not None:
        return False, -scores[0].mu
    shares = [Scale(*score.bounds).share(score.mu) for score in scores if score is not None]
    return True, -float(np.mean(shares)) if shares else 0.0


# -- models by questions -------------------------------------------------------------------------


@dataclass(frozen=True)
class HeatMapCell:
    """The position of a score in the range of scores, 0 to 1."""

    share: float

    @property
    def shade(self) -> int:
        """Shade in the heat map, 0 to 20."""
        return round(self.share * (SHADES - 1))


@dataclass(frozen=True)
class QuestionCell(HeatMapCell):
    """A model's score on a question: posterior mean, sd, and the trials as text."""

    mu: float
    sigma: float
    counted: str


@dataclass(frozen=True)
class QuestionRow(HeatMapCell):
    """A question's mean, with the cells of all models in the order of the leaderboard."""

    number: int
    name: str
    label: str
    text: TruncatedText
    mean: float
    cells: tuple[QuestionCell, ...]


@dataclass(frozen=True)
class QuestionTable:
    """The heat map of a panel.

    Attributes
    ----------
    rows : tuple of QuestionRow
        Questions, hardest first.
    selection : str
        Which questions are shown; "" if all are.
    """

    rows: tuple[QuestionRow, ...]
    selection: str


def question_table(panel: TaskPanel, data: ReportData) -> QuestionTable:
    """Return the heat map of a panel.

    If there are more questions than fit into a page, those are shown on which models differ
    most; for a single model the hardest.
    """
    scores, runs = panel.question_scores, panel.runs
    n_max = max(_MIN_QUESTIONS, min(_MAX_QUESTIONS, _MAX_CELLS // len(data.panels) // len(runs)))
    selected, selection = scores.select(n_max)
    n_texts = sum(min(other.board.n_questions, n_max) for other in data.panels)
    text_length = max(_MIN_TEXT, min(_MAX_TEXT, _MAX_CHARACTERS // max(1, n_texts)))
    scale = Scale(*panel.bounds)
    rows = []
    for question in selected.tolist():
        positions = [int(of_run[question]) for of_run in scores.rows]
        text = _question_text(runs, positions)
        question_id = runs[0].question_ids[question] if runs[0].question_ids else question + 1
        mean = float(scores.mu[question].mean())
        cells = tuple(
            QuestionCell(
                mu=float(mu),
                sigma=float(sigma),
                counted=_trial_counts(run, position),
                share=scale.share(float(mu)),
            )
            for run, position, mu, sigma in zip(
                runs, positions, scores.mu[question], scores.sigma[question], strict=True
            )
        )
        rows.append(
            QuestionRow(
                number=question + 1,
                name=name(question_id),
                label=name(short_text(text, _LABEL_LENGTH)),
                text=truncate(text, text_length),
                mean=mean,
                share=scale.share(mean),
                cells=cells,
            )
        )
    return QuestionTable(tuple(rows), selection)


def _question_text(runs: Sequence[TaskRun], positions: Sequence[int]) -> str:
    """Return the question's text from the first run that has it; "" if none has."""
    texts = (
        run.questions[position]
        for run, position in zip(runs, positions, strict=True)
        if run.questions
    )
    return next(filter(None, texts), "")


def _trial_counts(run: TaskRun, position: int) -> str:
    """Return the trials of a question as text."""
    if run.scored:
        n = plural(int(run.outcomes.n_trials[position]), "trial")
        return f"mean {run.outcomes.mean_score(position):.3g} of {n}"
    counts, weights = run.outcomes.counts[position], run.outcomes.weights
    if run.binary and weights[0] < weights[1]:
        return f"{counts[1]:,} of {counts.sum():,} right"
    parts = [
        f"{count:,} × {weight:g}"
        for count, weight in zip(counts.tolist(), weights.tolist(), strict=True)
        if count
    ]
    return ", ".join(parts) or "no trial"


# -- pairs of models -----------------------------------------------------------------------------


def heading_names(panel: TaskPanel) -> tuple[str, ...]:
    """Return short names of the models that fit into the headings of heat maps."""
    return shorten_names(short_names(panel.board.models), _MAX_HEADING)


def pair_table(panel: TaskPanel) -> list[tuple[str, list[tuple[float, bool] | None]]]:
    """Return P(A > B) of the first models and whether they are distinguishable; None for A and A.

    With the models' names.
    """
    n = min(_MAX_PAIRED, len(panel.board.models))
    if n < 2:
        return []
    p = panel.board.ranking.p_greater
    names = heading_names(panel)
    distinguishable = panel.board.ranking.distinguishable
    return [
        (
            names[i],
            [None if i == j else (float(p[i, j]), bool(distinguishable[i, j])) for j in range(n)],
        )
        for i in range(n)
    ]
