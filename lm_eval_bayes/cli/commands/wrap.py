"""`lm-eval-bayes wrap`: the YAML of a task that samples another one repeatedly."""

from __future__ import annotations

from typing import Annotated

import typer

from lm_eval_bayes.cli.ui.output import say


def command(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="A task of the harness, or the path of its YAML.")
    ],
) -> None:
    """Print the YAML of a task that samples another task repeatedly, to be edited.

    `lm_eval --tasks TASK_bayes` needs no such file; it is for those who want to change the number
    of trials, the sampling, the filters or the grader for good. Run it with
    `lm_eval --include_path FOLDER --tasks TASK_bayes`. The file includes that of TASK, so
    prompt, few-shot examples, stop strings, filters and grader are the task's own. A greedy task is
    sampled at temperature 0.6 and top_p 0.95.

    \b
    Examples:
      lm-eval-bayes wrap gsm8k_cot > tasks/gsm8k_cot_bayes.yaml
      lm-eval-bayes wrap tasks/my_task.yaml > tasks/my_task_bayes.yaml
    """
    from lm_eval_bayes.harness.plugin.sampled_tasks import wrapper_yaml

    for line in wrapper_yaml(task).splitlines():
        say(line)
