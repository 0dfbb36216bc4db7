"""`lm-eval-bayes noise`: how far apart runs of a model lie, and what differences runs show."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lm_eval_bayes.cli.screens.layout import Form, say_next, say_table
from lm_eval_bayes.cli.screens.noise import show_noise
from lm_eval_bayes.cli.ui.options import (
    MORE,
    Json,
    Level,
    Overwrite,
    Seed,
    option,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import (
    say,
    say_each,
    say_json,
    warn,
    warn_notes,
)
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs, check_not_read

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.noise import TaskNoise
    from lm_eval_bayes.runs.task_run import TaskRun


@prints_tables
def command(
    runs: Runs,
    *,
    difference: Annotated[
        float | None,
        option("D", "Show how many trials or questions a difference of two models needs."),
    ] = None,
    power: Annotated[
        float,
        option(
            "P",
            "Power with which a difference is shown, by a two-sided test at 1 - level.",
            panel=MORE,
        ),
    ] = 0.8,
    card: Annotated[
        Path | None, option("FILE", "Write the same as Markdown, for a model card.", panel=MORE)
    ] = None,
    overwrite: Overwrite = False,
    level: Level = 0.95,
    seed: Seed = 0,
    reading: ReadingOptions,
    as_json: Json = False,
) -> None:
    """Show how far runs of the same model lie apart, and what differences they can show.

    The variance of a trial's score is that within questions (chance) and that between questions
    (difficulty); their shares are posterior means, with credible intervals, under the prior of
    hbayes@N. ICC is the share between questions. From them follow how many questions flip between
    two trials, how far two runs of the same model on these questions lie apart, and the smallest
    difference of two models that N trials show: about these questions, or about their population
    with both models on the same questions (paired) or on separate ones.

    With one trial per question the two variances cannot be distinguished: distances are then upper
    bounds.

    \b
    Examples:
      lm-eval-bayes noise runs/qwen
      lm-eval-bayes noise board.npz --difference 0.02 --card noise.md
    """
    from lm_eval_bayes.analysis.noise import NoiseSettings, task_noise
    from lm_eval_bayes.export.files import check_targets, write_files
    from lm_eval_bayes.export.noise_tables import noise_card

    settings = NoiseSettings(level=level, power=power, difference=difference, seed=seed)
    if card is not None:
        check_targets([card], overwrite, "--card")
    saved = reading.read(runs)
    if card is not None:
        check_not_read([card], runs, saved, "--card")
    tasks = [
        task_noise(runs_of_task, settings)
        for name in saved.tasks
        for runs_of_task in _by_questions(saved.of_task(name))
    ]
    if as_json:
        say_json({**settings.to_dict(), "tasks": tasks, "warnings": saved.warnings})
    else:
        say_each(tasks, _show, lambda noise: noise.task)
        if difference is None:
            words = ["lm-eval-bayes", "noise", *map(str, runs), *reading.words()]
            low, high = saved.runs[0].outcomes.bounds
            suggested = f"{0.05 * (high - low):.1g}".removeprefix("0")
            say_next([*words, "--difference", suggested], "trials that it needs")
        warn_notes((noise.task, (), note) for noise in tasks for note in noise.notes)
        warn_notes(
            (noise.task, [model.model], note)
            for noise in tasks
            for model in noise.models
            for note in model.notes
        )
    if card is not None:
        write_files({card: noise_card(tasks).encode("utf-8")}, overwrite, "--card")
        warn(f"card written to {card}")


def _by_questions(runs: Iterable[TaskRun]) -> list[list[TaskRun]]:
    """Return the runs of a task that answered the same questions together."""
    groups: dict[frozenset[str], list[TaskRun]] = {}
    for run in runs:
        groups.setdefault(frozenset(run.question_ids), []).append(run)
    return list(groups.values())


def _show(noise: TaskNoise) -> None:
    from lm_eval_bayes.export.noise_tables import noise_page

    form = Form.of_output()
    show_noise(noise, form)
    if form.verbose:
        say()
        for table, sentences in noise_page(noise).parts:
            say_table(*table)
            for sentence in sentences:
                say(sentence)
