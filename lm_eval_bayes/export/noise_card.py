"""The noise of runs as a Markdown card, for a model card or the README of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval_bayes.analysis.noise import TaskNoise
from lm_eval_bayes.export.noise_tables import noise_page
from lm_eval_bayes.export.tables import markdown_cell, markdown_table


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
