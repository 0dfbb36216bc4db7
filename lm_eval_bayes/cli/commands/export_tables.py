"""`lm-eval-bayes export csv|json|markdown|latex`: the leaderboard as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.cli.ui.output import say
from lm_eval_bayes.cli.ui.reading import (
    Dedupe,
    Filter,
    Interval,
    IntervalKind,
    Level,
    Metric,
    Regrade,
    Runs,
    Scope,
    ScopeOption,
    Seed,
    Task,
    Ties,
    interval_spec,
    read,
)

if TYPE_CHECKING:
    from lm_eval_bayes.export.tables import Format

#: What --output takes for standard output.
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


_TABLE_HELP = """Write the leaderboard as {what}.

    {about}

    \b
    Examples:
      lm-eval-bayes export {form} runs/* -o leaderboard.{suffix}
      lm-eval-bayes export {form} runs/qwen runs/phi --task aime25_bayes --scope population
    """


def table_command(form: Format, what: str, suffix: str, about: str) -> Callable[..., None]:
    """Return the command that writes one format."""

    def command(
        runs: Runs,
        output: Annotated[
            Optional[Path],  # noqa: UP045
            typer.Option(
                "-o",
                "--output",
                metavar="FILE",
                help="The file. By default standard output.",
                show_default=False,
            ),
        ] = None,
        overwrite: Annotated[
            bool, typer.Option("--overwrite", help="Replace a file that is there.")
        ] = False,
        ties: Annotated[
            Ties,
            typer.Option(
                help="Whom a model is compared with to share a rank: the best of the rank "
                "(leader), its upper neighbour (adjacent), all of the rank (pairwise), or nobody."
            ),
        ] = Ties.leader,
        task: Task = None,
        metric: Metric = None,
        filter: Filter = None,
        dedupe: Dedupe = False,
        regrade: Regrade = False,
        level: Level = 0.95,
        scope: ScopeOption = Scope.benchmark,
        interval: Interval = IntervalKind.exact,
        seed: Seed = 0,
    ) -> None:
        from lm_eval_bayes.analysis.leaderboard import leaderboard
        from lm_eval_bayes.export.files import check_targets, write_files
        from lm_eval_bayes.export.tables import table_text

        target = None if output is None or str(output) in STDOUT else output
        if target is not None:
            check_targets([target], overwrite)
        found = read(runs, task=task, metric=metric, filter=filter, dedupe=dedupe, regrade=regrade)
        spec = interval_spec(level, seed, scope, interval)
        boards = [leaderboard(found.of_task(name), spec, ties=ties.value) for name in found.tasks]
        text = table_text(boards, form)
        if target is None:
            _to_stdout(text)
        else:
            write_files({target: text.encode("utf-8", "replace")}, overwrite)
            models = plural(len(found.models), "model")
            say(f"{target}: {models} on {plural(len(boards), 'task')}")

    command.__doc__ = _TABLE_HELP.format(form=form, what=what, suffix=suffix, about=about)
    return command


def _to_stdout(text: str) -> None:
    # a terminal of few letters still gets the table
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    typer.echo(text.encode(encoding, "replace").decode(encoding), nl=False)


_PEOPLE = (
    "One table a task, for people: rank, model, posterior mean and sd (hbayes@N), credible\n"
    "    interval, the probability of being the best, the ranks that are possible, and N. Names\n"
    "    of models and tasks mean nothing to the markup, whatever they contain."
)

#: Every format with what it is, the end of a file's name, and what stands in the help.
FORMATS: tuple[tuple[Format, str, str, str], ...] = (
    (
        "csv",
        "comma-separated values",
        "csv",
        "One line a model and task, with all digits. A name that a spreadsheet would take for a\n"
        "    formula gets an apostrophe before it.",
    ),
    (
        "json",
        "JSON",
        "json",
        "One leaderboard a task with all digits, the distribution of every rank and P(A > B) of\n"
        "    every two models.",
    ),
    ("markdown", "a table in Markdown", "md", _PEOPLE),
    ("latex", "a table in LaTeX", "tex", _PEOPLE),
)
