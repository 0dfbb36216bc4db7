"""The noise of runs as tables, for `noise --verbose` and for the Markdown card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from lm_eval_bayes._util.text import NO_VALUE, format_integer, format_score, one_line, plural
from lm_eval_bayes.analysis.noise import (
    DESIGN_WORDS,
    ModelNoise,
    RunNoise,
    TaskNoise,
    format_trials,
)
from lm_eval_bayes.export.tables import markdown_cell, markdown_table
from lm_eval_bayes.stats import NeededSize

#: The cell of a difference where no difference on the scale can be shown.
NONE_SHOWN = "none"


class Table(NamedTuple):
    """A table: its title, its headings, and its cells."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Page(NamedTuple):
    """A heading, and tables each with the sentences below it."""

    heading: str
    parts: tuple[tuple[Table, tuple[str, ...]], ...]


def noise_page(noise: TaskNoise) -> Page:
    """Return the tables of a task, with the rows of every model.

    Parameters
    ----------
    noise : TaskNoise
        Of one model, or of a board.

    Examples
    --------
    >>> from lm_eval_bayes.analysis.noise import task_noise
    >>> from lm_eval_bayes.runs.task_run import TaskRun
    >>> ids = [f"q{i}" for i in range(20)]
    >>> trials = [[1, 1, 0, 1]] * 10 + [[0, 0, 0, 0]] * 5 + [[1, 1, 1, 1]] * 5
    >>> page = noise_page(task_noise([TaskRun.from_trials("A", "aime", trials, ids)]))
    >>> page.heading
    'aime: 1 model, 20 questions'
    >>> (variances, _), (runs, _) = page.parts
    >>> [row[:2] for row in variances.rows], [row[:2] for row in runs.rows]
    ([('A', '0.625')], [('A', '1'), ('A', '4')])
    """
    level = f"{100 * noise.settings.level:g}%"
    models = noise.models
    title = "runs of a model, and the smallest difference of two models that is shown"
    parts = [
        (
            _table(
                "variance of a trial's score, about these questions",
                [_variances(model, level) for model in models],
            ),
            (),
        ),
        (
            _table(title, [_of_runs(model, run, level) for model in models for run in model.runs]),
            (_test_sentence(noise),),
        ),
    ]
    needed = [_needed(model, size) for model in models for size in model.needed]
    if needed:
        difference = f"to show a difference of {noise.settings.difference:g}"
        parts.append((_table(difference, needed), ()))
    heading = f"{noise.task}: {plural(len(models), 'model')}"
    return Page(f"{heading}, {plural(noise.n_questions, 'question')}", tuple(parts))


def _table(title: str, rows: Sequence[dict[str, str]]) -> Table:
    return Table(title, tuple(rows[0]), tuple(tuple(row.values()) for row in rows))


def _variances(model: ModelNoise, level: str) -> dict[str, str]:
    c = model.components
    return {
        "model": one_line(model.model),
        "score": format_score(c.score),
        "total": f"{c.total.mu:.4f}",
        "within": NO_VALUE if c.within is None else f"{c.within.mu:.4f}",
        "between": NO_VALUE if c.between is None else f"{c.between.mu:.4f}",
        "ICC": NO_VALUE if c.icc is None else f"{c.icc.mu:.2f}",
        level: NO_VALUE if c.icc is None else f"{c.icc.low:.2f} to {c.icc.high:.2f}",
        "flips": NO_VALUE if c.flip is None else format_score(c.flip.mu),
    }


def _of_runs(model: ModelNoise, run: RunNoise, level: str) -> dict[str, str]:
    bound = "<= " * run.is_bound
    return {
        "model": one_line(model.model),
        "N": format_trials(run.trials),
        "sd": bound + format_score(run.standard_error),
        "sd, population": format_score(run.population_standard_error),
        "apart, mean": bound + format_score(run.mean_distance),
        f"apart, {level}": bound + format_score(run.distance),
        **{f"shown: {w}": format_difference(run.shown(d)) for d, w in DESIGN_WORDS.items()},
    }


def _needed(model: ModelNoise, size: NeededSize) -> dict[str, str]:
    return {
        "model": one_line(model.model),
        "about": DESIGN_WORDS[size.design],
        "trials": needed_trials(size),
        f"questions of {format_trials(model.components.trials)} trials": format_integer(
            size.questions
        ),
    }


def _test_sentence(noise: TaskNoise) -> str:
    settings = noise.settings
    source = {
        "models": "from these models",
        "single trials": "of their single trials, estimated from these models",
        "assumed": "assumed",
    }[noise.correlation_source]
    if noise.correlation_interval is not None:
        low, high = noise.correlation_interval
        source += f" ({100 * settings.level:g}% interval {low:.2f} to {high:.2f})"
    return (
        f"shown: two-sided test at {100 * (1 - settings.level):.3g}%, power "
        f"{100 * settings.power:g}%; paired: correlation of two models over questions "
        f"{noise.correlation:.2f}, {source}"
    )


def needed_trials(needed: NeededSize) -> str:
    """Return the trials per question, or that no number is enough."""
    return format_integer(needed.trials) if needed.enough_questions else "no N is enough"


def format_difference(value: float | None) -> str:
    """Return a difference that is shown; "none" where none on the scale is."""
    return NONE_SHOWN if value == math.inf else format_score(value)


def noise_card(tasks: Sequence[TaskNoise]) -> str:
    """Return the noise of tasks as Markdown; all names are escaped.

    Parameters
    ----------
    tasks : sequence of TaskNoise
        At least one.

    Examples
    --------
    >>> from lm_eval_bayes.analysis.noise import task_noise
    >>> from lm_eval_bayes.runs.task_run import TaskRun
    >>> ids = [f"q{i}" for i in range(20)]
    >>> trials = [[1, 1, 0, 1]] * 10 + [[0, 0, 0, 0]] * 5 + [[1, 1, 1, 1]] * 5
    >>> card = noise_card([task_noise([TaskRun.from_trials("a|b", "aime", trials, ids)])])
    >>> print(card.splitlines()[0])
    ## Noise of aime: 1 model, 20 questions
    """
    return "\n".join(map(_section, tasks))


def _section(noise: TaskNoise) -> str:
    page = noise_page(noise)
    notes = [*noise.notes, *(f"{m.model}: {note}" for m in noise.models for note in m.notes)]
    blocks = [f"## Noise of {markdown_cell(page.heading)}"]
    for table, sentences in page.parts:
        blocks += [f"**{markdown_cell(table.title)}**", markdown_table(table.head, table.rows)]
        blocks.append("\n".join(f"- {markdown_cell(sentence)}" for sentence in sentences))
    blocks.append("\n".join(f"- note: {markdown_cell(note)}" for note in notes))
    return "\n\n".join(filter(None, blocks)) + "\n"
