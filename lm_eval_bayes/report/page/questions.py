"""The questions of a panel, and how every model does on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.report.page import text as words
from lm_eval_bayes.report.page.text import Scale, Text
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.validation import FloatArray, IntArray

#: Shades of a heat map, from 0.
SHADES = 21
#: Cells that all heat maps of a page may have together, and questions of a panel.
_CELLS, _FEWEST, _MOST = 8000, 10, 300
#: Characters of all texts together, and of one.
_CHARACTERS, _SHORTEST, _LONGEST = 1_200_000, 300, 4000
#: Characters of a question that stand in its line.
_LABEL = 90


@dataclass(frozen=True)
class Cell:
    """A model's score on a question: posterior mean, sd, and what was counted."""

    mu: float
    sigma: float
    counted: str
    share: float

    @property
    def shade(self) -> int:
        """Its shade in a heat map, 0 to 20."""
        return round(self.share * (SHADES - 1))


@dataclass(frozen=True)
class Question:
    """One question with the cells of all models, in the order of the leaderboard."""

    number: int
    name: str
    label: str
    text: Text
    mean: float
    share: float
    cells: tuple[Cell, ...]

    @property
    def shade(self) -> int:
        """The shade of its mean, 0 to 20."""
        return round(self.share * (SHADES - 1))


@dataclass(frozen=True)
class Questions:
    """The questions that a panel shows, the hardest first, and why not all of them.

    Attributes
    ----------
    shown : tuple of Question
        Lines of the heat map.
    total : int
        M.
    chosen : str
        Which ones are shown; "" where all are.
    """

    shown: tuple[Question, ...]
    total: int
    chosen: str


def questions_of(panel: TaskPanel, contents: ReportData) -> Questions:
    """Return the lines of a panel's heat map.

    Where there are more questions than a page can hold, those stay on which models differ
    most, and of a single model the hardest.
    """
    runs = panel.runs
    orders = [_order(runs[0], run) for run in runs]
    mu = np.stack(
        [one.learned["benchmark"].per_question.mu[o] for one, o in _with(panel, orders)], axis=1
    )
    sigma = np.stack(
        [one.learned["benchmark"].per_question.sigma[o] for one, o in _with(panel, orders)], axis=1
    )
    total = mu.shape[0]
    room = max(_FEWEST, min(_MOST, _CELLS // len(contents.panels) // len(runs)))
    kept, chosen = np.arange(total), ""
    if total > room:
        if len(runs) > 1:
            kept = np.argsort(-mu.std(axis=1), kind="stable")[:room]
            chosen = f"the {room:,} of {total:,} on which models differ most"
        else:
            kept = np.argsort(mu.mean(axis=1), kind="stable")[:room]
            chosen = f"the {room:,} hardest of {total:,}"
    kept = kept[np.argsort(mu[kept].mean(axis=1), kind="stable")]
    n_texts = sum(min(p.n_questions, room) for p in contents.panels)
    longest = max(_SHORTEST, min(_LONGEST, _CHARACTERS // max(1, n_texts)))
    return Questions(
        tuple(
            _question(int(q), runs, orders, mu, sigma, Scale(*panel.bounds), longest) for q in kept
        ),
        total,
        chosen,
    )


def _with(panel: TaskPanel, orders: Sequence[IntArray]) -> zip:  # type: ignore[type-arg]
    return zip(panel.summaries, orders, strict=True)


def _order(first: TaskRun, run: TaskRun) -> IntArray:
    """Return where a run has the questions of another one."""
    if run.question_ids == first.question_ids:
        return np.arange(run.n_questions)
    place = {name: number for number, name in enumerate(run.question_ids)}
    return np.array([place[name] for name in first.question_ids], dtype=np.int64)


def _question(
    q: int,
    runs: Sequence[TaskRun],
    orders: Sequence[IntArray],
    mu: FloatArray,
    sigma: FloatArray,
    scale: Scale,
    longest: int,
) -> Question:
    texts = (
        run.questions[order[q]]
        for run, order in zip(runs, orders, strict=True)
        if run.questions and run.questions[order[q]]
    )
    whole = next(texts, "")
    shown = words.text(whole, longest)
    mean = float(mu[q].mean())
    return Question(
        number=q + 1,
        name=words.name(runs[0].question_ids[q] if runs[0].question_ids else q + 1),
        label=_label(whole) if whole else words.name(runs[0].question_ids[q]),
        text=shown,
        mean=mean,
        share=scale.share(mean),
        cells=tuple(
            Cell(
                mu=float(mu[q, i]),
                sigma=float(sigma[q, i]),
                counted=_counted(run, int(order[q])),
                share=scale.share(float(mu[q, i])),
            )
            for i, (run, order) in enumerate(zip(runs, orders, strict=True))
        ),
    )


def _label(whole: str) -> str:
    """Return the beginning of a question on one line."""
    start = " ".join(whole[: 8 * _LABEL].split())
    short = start if len(start) <= _LABEL else f"{start[: _LABEL - 1].rstrip()}…"
    return words.name(short)


def _counted(run: TaskRun, question: int) -> str:
    """Return how the trials of a question ended."""
    counts = run.outcomes.counts[question]
    if run.binary and run.outcomes.weights[0] < run.outcomes.weights[1]:
        return f"{counts[1]:,} of {counts.sum():,} right"
    told = [
        f"{number:,} × {weight:g}"
        for number, weight in zip(counts.tolist(), run.outcomes.weights.tolist(), strict=True)
        if number
    ]
    return ", ".join(told) or "no trial"
