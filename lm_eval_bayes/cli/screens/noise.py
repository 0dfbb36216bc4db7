"""The screen of `noise`: how far two runs of a model lie apart, and what differences are shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

from lm_eval_bayes._util.text import format_integer, format_interval, format_score, plural
from lm_eval_bayes.cli.screens.bars import filled_bar
from lm_eval_bayes.cli.screens.layout import (
    Column,
    Form,
    free_width,
    names,
    say_columns,
    say_sentence,
)
from lm_eval_bayes.cli.ui.output import say

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.noise import ModelNoise, RunNoise, TaskNoise


def show_noise(noise: TaskNoise, form: Form) -> None:
    """Print the noise of a model's runs, or of those of several models."""
    from lm_eval_bayes.analysis.settings import spread_sentence
    from lm_eval_bayes.export.noise_tables import format_difference

    if len(noise.models) > 1:
        _show_models(noise, form)
        return
    (model,) = noise.models
    settings, level = noise.settings, f"{100 * noise.settings.level:g}%"
    run, spread, n_settings = model.full, model.spread, len(model.run.settings)
    if spread is not None:
        say_sentence(spread_sentence(spread, n_settings, settings.level), form)
    say_sentence(
        f"Two runs of {model.model} with {_trials(run)} differ by up to "
        f"{format_score(run.distance)} by chance ({level}). Another model is distinguishable if it "
        f"differs by {format_difference(run.shown('benchmark'))} or more "
        f"(power {settings.power:.0%}).",
        form,
    )
    say()
    again = "this model, run again" + ", at most" * run.is_bound
    rows: list[tuple[str, Callable[[RunNoise], float | None]]] = [
        (again, lambda run: run.distance),
        ("another model, these questions", lambda run: run.shown("benchmark")),
        ("another model, other questions", lambda run: run.shown("paired")),
        ("  with questions of its own", lambda run: run.shown("unpaired")),
    ]
    columns = [
        Column(noise.task, [name for name, _ in rows], left=True),
        *(
            Column(f"N = {run.trials:.3g}", [format_difference(value(run)) for _, value in rows])
            for run in model.runs
        ),
    ]
    values = [value(model.full) for _, value in rows]
    finite = [v for v in values if v is not None and math.isfinite(v)]
    longest, width = max(finite, default=1.0), free_width(columns, form)
    bars = [
        filled_bar(v / longest, width, form.drawn, rest=False) if v in finite and v else ""
        for v in values
    ]
    say_columns([*columns, Column("", bars, left=True)], form)
    flip = model.components.flip
    if flip is not None:
        say_sentence(
            f"{flip.mu:.0%} of the questions flip between two single trials ({level}: "
            f"{100 * flip.low:.0f} to {100 * flip.high:.0f}%).",
            form,
        )
    if spread is not None:
        ends, apart = format_interval(spread.new_setting), format_score(spread.apart)
        say_sentence(
            f"The score in a setting like these {n_settings} lies in {ends}. Two settings lie at "
            f"most {apart} apart, two runs with their trials {format_score(spread.runs_apart)} "
            f"({level}).",
            form,
        )
    if model.needed:
        say()
        _show_needed(model, noise, form)


def _show_models(noise: TaskNoise, form: Form) -> None:
    from lm_eval_bayes.export.noise_tables import format_difference, needed_trials

    settings, level = noise.settings, f"{100 * noise.settings.level:g}%"
    distances = [model.full.distance for model in noise.models]
    middle, *ends = map(format_score, (median(distances), min(distances), max(distances)))
    among = f"; {' to '.join(ends)} for the {plural(len(noise.models), 'model')}"
    say_sentence(
        f"Two runs of a model with {_trials(noise.models[0].full)} differ by up to "
        f"{middle} by chance ({level}{among * (ends[0] != ends[1])}).",
        form,
    )
    say()
    models = noise.models
    columns = [
        names("model", [model.model for model in models]),
        Column("avg@N", [format_score(model.components.score) for model in models]),
        Column(
            "run again" + ", at most" * any(m.full.is_bound for m in models),
            [format_difference(model.full.distance) for model in models],
        ),
        Column(
            "another model", [format_difference(model.full.shown("benchmark")) for model in models]
        ),
        Column(
            "on other questions",
            [format_difference(model.full.shown("paired")) for model in models],
        ),
    ]
    if any(model.needed for model in models):
        columns.append(
            Column(
                f"trials for {settings.difference:g}",
                [needed_trials(model.needed[0]) for model in models],
            )
        )
    say_columns(columns, form)
    say(f"another model: the smallest difference that is shown with power {settings.power:.0%}")


def _show_needed(model: ModelNoise, noise: TaskNoise, form: Form) -> None:
    from lm_eval_bayes.analysis.noise import DESIGN_WORDS
    from lm_eval_bayes.export.noise_tables import needed_trials

    n = f"{model.components.trials:g}"
    columns = [
        Column(
            f"to show a difference of {noise.settings.difference:g}",
            [DESIGN_WORDS[needed.design] for needed in model.needed],
            left=True,
        ),
        Column(
            f"N on {plural(noise.n_questions, 'question')}",
            [needed_trials(needed) for needed in model.needed],
        ),
        Column(
            f"questions with N = {n}",
            [format_integer(needed.questions) for needed in model.needed],
        ),
    ]
    say_columns(columns, form)


def _trials(run: RunNoise) -> str:
    return f"{run.trials:.3g} {'trial' if run.trials == 1 else 'trials'}"
