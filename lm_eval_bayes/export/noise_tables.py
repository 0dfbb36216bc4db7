"""The noise of runs as tables and sentences, for the terminal and for the Markdown card."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from lm_eval_bayes._util.text import (
    NO_VALUE,
    format_integer,
    format_range,
    format_score,
    one_line,
    plural,
    shorten_middle,
)
from lm_eval_bayes.analysis.noise import (
    DESIGN_WORDS,
    ModelNoise,
    RunNoise,
    TaskNoise,
    format_trials,
    spread,
)
from lm_eval_bayes.stats import NeededSize

#: Characters of a model's name in the heading.
_MAX_NAME = 60
#: The cell of a difference where no difference on the scale can be shown.
NONE_SHOWN = "none"


class Table(NamedTuple):
    """A table: its title, its headings, and its cells."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


#: A table with the sentences below it.
Part: TypeAlias = tuple[Table, tuple[str, ...]]


class Page(NamedTuple):
    """A heading, and tables each with the sentences below it."""

    heading: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...]


def noise_page(noise: TaskNoise) -> Page:
    """Return the tables and sentences of a task.

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
    'aime, A: 20 questions, N = 4, score 0.625'
    >>> [table.title.partition(",")[0] for table, _ in page.parts]
    ["variance of a trial's score", 'two runs of this model']
    """
    parts = _board_parts(noise) if len(noise.models) > 1 else _model_parts(noise)
    models = plural(len(noise.models), "model")
    questions = plural(noise.n_questions, "question")
    heading = f"{noise.task}: {models}, {questions}"
    if len(noise.models) == 1:
        (model,) = noise.models
        score = format_score(model.components.score)
        name = shorten_middle(one_line(model.model), _MAX_NAME)
        n = format_range(model.components.trials_range)
        heading = f"{noise.task}, {name}: {questions}, N = {n}, score {score}"
    notes: dict[str, list[str]] = {}
    for model in noise.models:
        for note in model.notes:
            notes.setdefault(note, []).append(model.model)
    texts = noise.notes + tuple(
        note if len(names) == len(noise.models) else f"{', '.join(names)}: {note}"
        for note, names in notes.items()
    )
    return Page(heading, tuple(parts), texts)


# -- one model -----------------------------------------------------------------------------------


def _model_parts(noise: TaskNoise) -> list[Part]:
    (model,) = noise.models
    parts: list[Part] = [
        (_components_table(model, noise), _flip_sentences(model, noise)),
        (_runs_table(model, noise), (_test_sentence(noise),)),
    ]
    if model.needed:
        parts.append(_needed_part(model, noise))
    return parts


def _components_table(model: ModelNoise, noise: TaskNoise) -> Table:
    c, level = model.components, _percent(noise.settings.level)
    head = ("", "variance", "share", f"{level} interval")
    rows: list[tuple[str, ...]] = []
    if c.within is not None and c.between is not None and c.icc is not None:
        icc = c.icc
        ends = f"{format_score(1 - icc.high)} to {format_score(1 - icc.low)}"
        rows = [
            ("within questions", f"{c.within.mu:.4f}", format_score(1 - icc.mu), ends),
            (
                "between questions (share: ICC)",
                f"{c.between.mu:.4f}",
                format_score(icc.mu),
                f"{format_score(icc.low)} to {format_score(icc.high)}",
            ),
        ]
    rows.append(("total", f"{c.total.mu:.4f}", "", ""))
    return Table("variance of a trial's score, about these questions", head, tuple(rows))


def _flip_sentences(model: ModelNoise, noise: TaskNoise) -> tuple[str, ...]:
    c = model.components
    sentences = []
    if c.flip is not None:
        low, high = _percent(c.flip.low), _percent(c.flip.high)
        level = _percent(noise.settings.level)
        sentences.append(
            f"flip between two single trials: {_percent(c.flip.mu)} of the questions "
            f"({level} interval {low} to {high})"
        )
    if c.flipped is not None:
        sentences.append(f"different scores among their own trials: {_percent(c.flipped)}")
    return tuple(sentences)


def _runs_table(model: ModelNoise, noise: TaskNoise) -> Table:
    level = _percent(noise.settings.level)

    def row(label: str, value: Callable[[RunNoise], float | None], bound: bool) -> tuple[str, ...]:
        cells = []
        for of_run in model.runs:
            sign = "<= " if bound and of_run.is_bound else ""
            cells.append(sign + format_difference(value(of_run)))
        return (label, *cells)

    rows = [
        row("sd of a run's score, these questions", lambda run: run.standard_error, True),
        row("sd of a run's score, population", lambda run: run.population_standard_error, False),
        row("two runs lie apart, in the mean", lambda run: run.mean_distance, True),
        row(f"two runs lie apart, {level} at most", lambda run: run.distance, True),
        *(
            row(
                f"shown: {about}",
                lambda run, design=design: run.shown(design),  # type: ignore[misc]
                False,
            )
            for design, about in DESIGN_WORDS.items()
        ),
    ]
    head = ("", *(f"N = {format_trials(run.trials)}" for run in model.runs))
    title = "two runs of this model, and the smallest difference of two models shown"
    return Table(title, head, tuple(rows))


def _test_sentence(noise: TaskNoise) -> str:
    settings = noise.settings
    alpha = f"{100 * (1 - settings.level):.3g}%"
    source = {
        "models": "from these models",
        "single trials": "of their single trials, estimated from these models",
        "assumed": "assumed",
    }[noise.correlation_source]
    if noise.correlation_source in ("models", "single trials"):
        source += f" on {plural(noise.n_questions, 'question')}"
        if noise.correlation_interval is not None:
            low, high = noise.correlation_interval
            source += f" ({100 * settings.level:g}% interval {low:.2f} to {high:.2f})"
    return (
        f"shown: two-sided test at {alpha}, power {_percent(settings.power)}; paired: "
        f"correlation of two models over questions {noise.correlation:.2f}, {source}"
    )


def _needed_part(model: ModelNoise, noise: TaskNoise) -> Part:
    difference = f"{noise.settings.difference:g}"
    n = format_trials(model.components.trials)
    head = ("", f"N on {noise.n_questions:,} questions", f"questions with N = {n}")
    rows = tuple(
        (DESIGN_WORDS[needed.design], needed_trials(needed), format_integer(needed.questions))
        for needed in model.needed
    )
    return Table(f"to show a difference of {difference}", head, rows), ()


def needed_trials(needed: NeededSize) -> str:
    """Return the trials per question, or that no number is enough."""
    return format_integer(needed.trials) if needed.enough_questions else "no N is enough"


# -- a board -------------------------------------------------------------------------------------


def _board_parts(noise: TaskNoise) -> list[Part]:
    level = _percent(noise.settings.level)
    sizes = {n for model in noise.models for n in model.components.trials_range}
    n = f"{sizes.pop():,}" if len(sizes) == 1 else "N"
    single = all(len(model.runs) == 1 for model in noise.models)
    rows = []
    for model in noise.models:
        c = model.components
        sign = "<=" if model.single.is_bound else ""
        of_runs = [model.single] if single else [model.single, model.full]
        rows.append(
            (
                one_line(model.model),
                format_score(c.score),
                NO_VALUE if c.icc is None else f"{c.icc.mu:.2f}",
                NO_VALUE if c.flip is None else _percent(c.flip.mu),
                *(sign + format_score(run.distance) for run in of_runs),
                format_difference(model.full.shown("paired")),
            )
        )
    ns = ("1",) if single else ("1", n)
    head = (
        "model",
        "score",
        "ICC",
        "flips",
        *(f"apart {size}" for size in ns),
        f"shown {n}, paired",
    )
    title = f"apart N: {level} of two runs with N trials per question are at most so far apart"
    parts: list[Part] = [(Table(title, head, tuple(rows)), (_test_sentence(noise),))]
    parts.append((_spread_table(noise, n), ()))
    if noise.settings.difference is not None:
        parts.append(_board_needed(noise, n))
    return parts


def _spread_table(noise: TaskNoise, n: str) -> Table:
    """Return the medians and ranges over the models."""
    level, models = _percent(noise.settings.level), noise.models

    def row(label: str, values: Sequence[float | None], form: Callable[[float], str]) -> list[str]:
        over = spread(values)
        if over is None:
            return [label, NO_VALUE, NO_VALUE, NO_VALUE]
        return [label, *map(form, over)]

    flips = [None if m.components.flip is None else m.components.flip.mu for m in models]
    bound = "at most " if any(model.single.is_bound for model in models) else ""
    rows = [
        row("questions that flip between two trials", flips, _percent),
        row(
            "different scores among own trials",
            [model.components.flipped for model in models],
            _percent,
        ),
        row(
            f"two single runs apart, mean {bound}".rstrip(),
            [model.single.mean_distance for model in models],
            format_score,
        ),
        row(
            f"two single runs apart, {level} at most",
            [m.single.distance for m in models],
            format_score,
        ),
    ]
    if any(len(model.runs) > 1 for model in models):
        rows.append(
            row(
                f"two runs with {n} trials, {level} at most",
                [model.full.distance for model in models],
                format_score,
            )
        )
    for design, about in DESIGN_WORDS.items():
        values = [model.full.shown(design) for model in models]
        rows.append(row(f"shown: {about}", values, format_difference))
    return Table(
        "over the models",
        ("", "median", "lowest", "highest"),
        tuple(tuple(cells) for cells in rows),
    )


def _board_needed(noise: TaskNoise, n: str) -> Part:
    """Return the trials and questions that the median and the most demanding model need."""
    rows = []
    repeated = all(model.components.within is not None for model in noise.models)
    for number, (_, about) in enumerate(DESIGN_WORDS.items()):
        needed = [model.needed[number] for model in noise.models]
        enough = [size for size in needed if size.enough_questions]
        trials, questions = (
            spread([size.trials for size in needed]),
            spread([size.questions for size in needed]),
        )
        rows.append(
            (
                about,
                f"{len(enough)} of {len(needed)}" if repeated else NO_VALUE,
                NO_VALUE if trials is None else _counts(*trials[1:]),
                NO_VALUE if questions is None else _counts(*questions[1:]),
            )
        )
    head = ("", "possible for", f"N on {noise.n_questions:,} questions", f"questions, N = {n}")
    title = f"to show a difference of {noise.settings.difference:g}, lowest to highest model"
    unknown = "-: not known, since a model has one trial per question"
    return Table(title, head, tuple(rows)), () if repeated else (unknown,)


# -- cells ---------------------------------------------------------------------------------------


def _counts(low: float, high: float) -> str:
    return format_integer(low) if low == high else f"{format_integer(low)} to {high:,.0f}"


def _percent(share: float) -> str:
    text = f"{100 * share:.1f}" if share < 0.1 else f"{100 * share:.4g}"
    return f"{text.removesuffix('.0')}%" if share < 0.1 or share > 0.9 else f"{100 * share:.0f}%"


def format_difference(value: float | None) -> str:
    """Return a difference that is shown; "none" where none on the scale is."""
    return NONE_SHOWN if value == math.inf else format_score(value)
