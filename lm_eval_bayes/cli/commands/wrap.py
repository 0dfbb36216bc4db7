"""`lm-eval-bayes wrap`: the YAML of a task that samples another one repeatedly."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lm_eval_bayes._util.files import is_same_file
from lm_eval_bayes.cli.ui.options import Overwrite, option
from lm_eval_bayes.cli.ui.output import say
from lm_eval_bayes.errors import InvalidInputError


def command(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="A task of the harness, or the path of its YAML.")
    ],
    n: Annotated[
        int | None,
        option("N", "Trials per question; by default the task's `repeats`, else 16.", "-n"),
    ] = None,
    output: Annotated[
        Path | None,
        option("FILE", "The file to write; by default it is printed.", "--output", "-o"),
    ] = None,
    name: Annotated[
        str | None, option("NAME", "The name of the new task; by default TASK_bayes.")
    ] = None,
    include_path: Annotated[
        list[Path] | None,
        option("PATH", "A folder of tasks of your own; can be repeated.", "--include_path"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the YAML of a task that samples another task repeatedly, to be edited.

    `lm_eval --tasks TASK_bayes` needs no such file; it is for those who want to change the number
    of trials, the sampling, the filters or the grader for good. Run it with
    `lm_eval --include_path FOLDER --tasks TASK_bayes`. The file includes that of TASK, so
    prompt, few-shot examples, stop strings, filters and grader are the task's own. A greedy task is
    sampled at temperature 0.6 and top_p 0.95.

    \b
    Examples:
      lm-eval-bayes wrap gsm8k_cot -n 16 -o tasks/gsm8k_cot_bayes.yaml
      lm-eval-bayes wrap my_task --include_path tasks --name my_task_sampled
    """
    from lm_eval_bayes.export.files import check_targets, write_files
    from lm_eval_bayes.harness.plugin.sampled_tasks import task_file, wrapper_yaml

    if output is not None:
        check_targets([output], overwrite)
    if n is not None and n < 1:
        raise InvalidInputError.of("-n", "range", "be at least 1", n)
    text = wrapper_yaml(task, n, name, include_path or ())
    if output is not None and output.exists():
        is_path = task.endswith((".yaml", ".yml"))
        included = Path(task).expanduser() if is_path else task_file(task, include_path or ())
        if included is not None and is_same_file(output, included):
            rule = "be another file than that of TASK, which the new one includes"
            raise InvalidInputError.of("--output", "conflict", rule, str(output))
    if output is None:
        for line in text.splitlines():
            say(line)
    else:
        write_files({output: text.encode("utf-8")}, overwrite)
        say(f"{output}: run it with lm_eval --include_path {output.parent}")
