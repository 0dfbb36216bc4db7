"""The attempts at the questions of a page: verdicts, answers, tokens and texts, as JSON.

The page holds them as data, and a script shows those of a question when it is opened. Texts are
read from the runs' logs and stores for the questions of the page only, question by question, and
are shortened in the middle so that all of them take at most so many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lm_eval_bayes._util.text import format_bytes, join_words, plural, printable_lines
from lm_eval_bayes.analysis.report_data import TaskPanel
from lm_eval_bayes.report.page.tables import QuestionTable
from lm_eval_bayes.report.page.text import json_island, name
from lm_eval_bayes.runs.question_texts import question_texts
from lm_eval_bayes.runs.task_run import TOKENS, TaskRun
from lm_eval_bayes.stats import FloatArray, ScoreOutcomes

#: Attempts of a page, and bytes of their verdicts, answers and tokens.
MAX_ATTEMPTS, _MAX_BYTES = 250_000, 2_500_000
#: Bytes of the texts of a page, unless another number is asked for.
TEXT_BYTES = 4_000_000
#: Characters of a text for which fewer texts are shown, and the most characters of one.
_MIN_TEXT, _MAX_TEXT = 1500, 20_000
#: Texts are held until all are read, at most so many times the bytes of the page.
_HELD = 8
#: Characters of an extracted answer, and of the right answers.
_MAX_ANSWER = 120
#: Runs without texts that are named.
_MAX_NAMED = 3


class Cut(NamedTuple):
    """A text without its middle: its beginning, the characters left out, and its end."""

    head: str
    left_out: int = 0
    tail: str = ""

    def shortened(self, longest: int) -> Cut:
        """Return the same text with at most so many characters.

        Examples
        --------
        >>> Cut("abcdef").shortened(4), Cut("abc").shortened(4)
        (Cut(head='ab', left_out=2, tail='ef'), Cut(head='abc', left_out=0, tail=''))
        """
        text = self.head + self.tail
        if len(text) <= longest:
            return self
        end = longest // 2
        n_more = len(text) - longest
        return Cut(text[: longest - end], self.left_out + n_more, text[len(text) - end :])

    def to_json(self) -> list[Any]:
        """Return what the page holds, with invisible characters escaped."""
        head = _printable(self.head)
        return [head, self.left_out, _printable(self.tail)] if self.left_out else [head]


@dataclass(frozen=True)
class Attempts:
    """The attempts of a page.

    Attributes
    ----------
    panels : dict
        By the number of a panel its questions, as `report.js` reads them.
    note : str
        Which texts the page holds, and which it does not, in sentences.
    """

    panels: dict[str, Any]
    note: str


def page_attempts(
    panels: Sequence[TaskPanel], tables: Sequence[QuestionTable], text_bytes: int
) -> Attempts:
    """Return the attempts at all questions that a page shows.

    Parameters
    ----------
    panels : sequence of TaskPanel
        The panels.
    tables : sequence of QuestionTable
        The questions of each that the page shows.
    text_bytes : int
        The most bytes of all texts together; 0 for none.

    Raises
    ------
    InvalidInputError
        If a log is no longer what was read before.
    """
    pairs = list(zip(panels, tables, strict=True))
    content = _fitting_attempts(pairs)
    logged = [(run, len(table.rows)) for panel, table in pairs for run in panel.runs if run.texts]
    n_cells = sum(n for _, n in logged)
    n_trials = sum(n * run.n_trials / run.n_questions for run, n in logged) / max(1, n_cells)
    texts = _Texts(text_bytes, n_cells, n_trials)
    for panel, table in pairs:
        questions = content[str(panel.number)]["questions"]
        for row in table.rows:
            _add_texts(questions[str(row.number)], _cells(panel, row.number), texts)
    texts.fit()
    return Attempts(content, texts.note([run for panel in panels for run in panel.runs]))


def _fitting_attempts(pairs: Sequence[tuple[TaskPanel, QuestionTable]]) -> dict[str, Any]:
    """Return the attempts without texts: the first at every question, as many as fit."""
    n_cells = sum(len(table.rows) * len(panel.runs) for panel, table in pairs)
    n_shown = max(1, MAX_ATTEMPTS // max(1, n_cells))
    while True:
        content = {str(panel.number): _panel(panel, table, n_shown) for panel, table in pairs}
        n_bytes = len(json_island(content))
        if n_bytes <= _MAX_BYTES or n_shown == 1:
            return content
        n_shown = min(n_shown - 1, max(1, n_shown * _MAX_BYTES // n_bytes))


def _panel(panel: TaskPanel, table: QuestionTable, n_shown: int) -> dict[str, Any]:
    first = panel.runs[0]
    labels = ["wrong", "right"]
    if not (first.binary and first.outcomes.weights[0] < first.outcomes.weights[1]):
        labels = [] if first.scored else [f"score {w:g}" for w in first.outcomes.weights]
    questions = {}
    for row in table.rows:
        answers: dict[str, int] = {}
        models = [_attempts(*cell, n_shown, answers) for cell in _cells(panel, row.number)]
        questions[str(row.number)] = {"right": None, "models": models, "answers": list(answers)}
    return {"labels": labels, "questions": questions}


def _cells(panel: TaskPanel, number: int) -> list[tuple[TaskRun, int]]:
    """Return every run of a panel with the row of a question in it."""
    rows = (int(of_run[number - 1]) for of_run in panel.question_scores.rows)
    return list(zip(panel.runs, rows, strict=True))


def _attempts(run: TaskRun, row: int, n_shown: int, answers: dict[str, int]) -> dict[str, Any]:
    """Return the first attempts of a model at a question; `answers` gets their answers."""
    attempts: dict[str, Any] = {"n": int(run.outcomes.n_trials[row])}
    if isinstance(run.outcomes, ScoreOutcomes):
        scores = run.outcomes.scores[row][:n_shown]
        attempts["scores"] = [f"{score:.4g}" for score in scores.tolist()]
    elif run.trials is not None:
        categories = run.trials[row][:n_shown].tolist()
        compact = max(categories, default=0) < 10
        attempts["categories"] = "".join(map(str, categories)) if compact else categories
    if run.answers is not None:
        attempts["answers"] = [
            -1 if answer is None else answers.setdefault(name(answer)[:_MAX_ANSWER], len(answers))
            for answer in run.answers[row][:n_shown]
        ]
    if run.is_graded is not None and not run.is_graded[row].all():
        attempts["n_unscored"] = int((~run.is_graded[row]).sum())
    if TOKENS in run.measured:
        tokens = run.measured[TOKENS][row][:n_shown].tolist()
        attempts["tokens"] = [None if t != t else round(t) for t in tokens]
    return attempts


def _add_texts(question: dict[str, Any], cells: list[tuple[TaskRun, int]], texts: _Texts) -> None:
    """Read the right answers of a question and the texts of its attempts."""
    for model, (run, row) in zip(question["models"], cells, strict=True):
        if run.texts is None or (not texts.budget and question["right"] is not None):
            continue
        read = question_texts(run, row)
        if read.right_answers and question["right"] is None:
            question["right"] = name(" or ".join(read.right_answers))[:_MAX_ANSWER]
        texts.n_damaged += read.n_damaged
        if any(text is not None for text in read.responses):
            texts.runs.add(id(run))
            if texts.budget:
                model["texts"] = texts.keep(read.responses[: _n_shown(model)])


def _n_shown(model: dict[str, Any]) -> int:
    """Return how many attempts are shown; where only counts are known, as many as have texts."""
    listed = model.get("scores") or model.get("categories")
    return model["n"] if listed is None else len(listed)


# -- the texts -----------------------------------------------------------------------------------


class _Texts:
    """The texts of a page: read question by question, and at last cut so that they fit.

    Parameters
    ----------
    budget : int
        The most bytes of all together.
    n_cells : int
        Questions of all models of the page.
    n_trials : float
        Mean number of trials of a question.
    """

    def __init__(self, budget: int, n_cells: int, n_trials: float) -> None:
        self.budget = budget
        #: Questions of models of which texts are held, and texts of each.
        self.cells_left = min(n_cells, budget // _MIN_TEXT)
        held = _HELD * budget // max(1, self.cells_left)
        self.per_cell = held // _MIN_TEXT
        self.longest = int(min(_MAX_TEXT, max(_MIN_TEXT, held / max(1.0, n_trials))))
        self.n_logged = self.n_shown = self.n_cut = self.n_damaged = 0
        #: The runs of which texts were read.
        self.runs: set[int] = set()
        self._places: list[tuple[list[Any], int, Cut]] = []

    def keep(self, responses: Sequence[str | None]) -> list[Any]:
        """Return a list that `fit` fills with the first texts, as many as fit."""
        self.n_logged += sum(text is not None for text in responses)
        if not responses or self.cells_left < 1:
            return []
        self.cells_left -= 1
        place: list[Any] = []
        for i, text in enumerate(responses[: self.per_cell]):
            if text is not None:
                self._places.append((place, i, Cut(text).shortened(self.longest)))
        return place

    def fit(self) -> None:
        """Cut the texts to one length, the largest at which all fit, and fill the lists.

        If they do not fit at `_MIN_TEXT` characters, fewer texts of each question are shown.
        """
        lengths = np.array([len(c.head) + len(c.tail) for _, _, c in self._places], dtype=np.int64)
        sizes = np.array([_size(cut) for _, _, cut in self._places], dtype=np.float64)
        ranks = np.array([i for _, i, _ in self._places], dtype=np.int64)

        def estimate(longest: int) -> FloatArray:
            return sizes * np.minimum(1.0, longest / np.maximum(1, lengths))

        per_rank = np.bincount(ranks, weights=estimate(_MIN_TEXT))
        n_ranks = max(1, int((np.cumsum(per_rank) <= self.budget).sum()))
        shown = [place for place in self._places if place[1] < n_ranks]
        costs_of = ranks < n_ranks
        for longest in _decreasing(self.longest):
            if estimate(longest)[costs_of].sum() <= 1.05 * self.budget:
                cuts = [cut.shortened(longest) for _, _, cut in shown]
                if sum(map(_size, cuts)) <= self.budget:
                    break
        self.longest, self.n_shown = longest, len(shown)
        for (place, i, _), cut in zip(shown, cuts, strict=True):
            place.extend([None] * (i + 1 - len(place)))
            place[i] = cut.to_json()
            self.n_cut += bool(cut.left_out)

    def note(self, runs: Sequence[TaskRun]) -> str:
        """Return which texts the page holds as sentences."""
        if not self.budget:
            return "The texts of the attempts were left out."
        parts = []
        if self.n_shown:
            parts.append(
                f"The page holds at most {format_bytes(self.budget)} of the models' texts: "
                f"{self.n_shown:,} of {plural(self.n_logged, 'text')}"
                + (
                    f", {self.n_cut:,} of them shortened to {self.longest:,} characters."
                    if self.n_cut
                    else "."
                )
            )
        if self.n_damaged:
            parts.append(f"Damaged in a log, and left out: {plural(self.n_damaged, 'text')}.")
        without = [run for run in runs if id(run) not in self.runs]
        if without and len(without) == len(runs):
            parts.append("The runs were read from files without texts that this report reads.")
        elif without:
            names = [name(run.model) for run in without[:_MAX_NAMED]]
            if len(without) > _MAX_NAMED:
                names.append(plural(len(without) - _MAX_NAMED, "more run"))
            parts.append(f"No texts that this report reads were logged of {join_words(names)}.")
        return " ".join(parts)


def _decreasing(longest: int) -> Iterator[int]:
    """Yield lengths from the longest on, each a tenth shorter."""
    while longest:
        yield longest
        longest = int(0.9 * longest)


def _size(cut: Cut) -> int:
    """Return the bytes that a text takes in the page."""
    return len(json_island(cut.to_json())) + 1


def _printable(text: str) -> str:
    """Return a text with invisible characters escaped; quickly where there are none."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return printable_lines(text)
