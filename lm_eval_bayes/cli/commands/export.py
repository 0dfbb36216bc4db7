"""`lm-eval-bayes export`: leaderboard submissions, and the leaderboard as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.cli.commands import export_every_eval_ever, export_hub
from lm_eval_bayes.cli.ui.options import (
    STANDARD_OUTPUT,
    IntervalOptions,
    Overwrite,
    ReadingOptions,
    Runs,
    TieRule,
    Ties,
    expand_options,
)
from lm_eval_bayes.cli.ui.output import say

if TYPE_CHECKING:
    from lm_eval_bayes.export.tables import Format

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Write leaderboard submissions, or the leaderboard as a table.",
)

_TABLE_HELP = """Write the leaderboard as {format_name}.

    {content}

    \b
    Examples:
      lm-eval-bayes export {form} runs/* -o leaderboard.{suffix}
      lm-eval-bayes export {form} runs/qwen runs/phi --task aime25_bayes --scope population
    """

_MARKUP_CONTENT = (
    "One table per task: rank, model, posterior mean and sd (hbayes@N), credible interval, the\n"
    "    probability of being the best, credible ranks, and N. Names of models and tasks are\n"
    "    escaped."
)

#: Every format: its name in a sentence, the suffix of its files, and its content.
_FORMATS: tuple[tuple[Format, str, str, str], ...] = (
    (
        "csv",
        "comma-separated values",
        "csv",
        "One line per model and task, with all digits. Names that a spreadsheet would read as a\n"
        "    formula start with an apostrophe.",
    ),
    (
        "json",
        "JSON",
        "json",
        "One leaderboard per task with all digits, the distribution of every rank and P(A > B)\n"
        "    for every pair of models.",
    ),
    ("markdown", "a table in Markdown", "md", _MARKUP_CONTENT),
    ("latex", "a table in LaTeX", "tex", _MARKUP_CONTENT),
)


def _table_command(
    form: Format, format_name: str, suffix: str, content: str
) -> Callable[..., None]:
    """Return the command that writes the leaderboard in one format."""

    def command(
        runs: Runs,
        *,
        output: Annotated[
            Optional[Path],  # noqa: UP045  typer reads this on Python 3.10 too
            typer.Option(
                "-o",
                "--output",
                metavar="FILE",
                help="The file. By default standard output.",
                show_default=False,
            ),
        ] = None,
        overwrite: Overwrite = False,
        ties: Ties = TieRule.leader,
        reading: ReadingOptions,
        intervals: IntervalOptions,
    ) -> None:
        from lm_eval_bayes.analysis.leaderboard import leaderboard
        from lm_eval_bayes.export.files import check_targets, write_files
        from lm_eval_bayes.export.tables import table_text

        spec = intervals.spec()
        target = None if output is None or str(output) in STANDARD_OUTPUT else output
        if target is not None:
            check_targets([target], overwrite)
        saved = reading.read(runs)
        boards = [leaderboard(saved.of_task(name), spec, ties=ties.value) for name in saved.tasks]
        text = table_text(boards, form)
        if target is None:
            encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
            typer.echo(text.encode(encoding, "replace").decode(encoding), nl=False)
        else:
            write_files({target: text.encode("utf-8", "replace")}, overwrite)
            models = plural(len(saved.models), "model")
            say(f"{target}: {models} on {plural(len(boards), 'task')}")

    command.__doc__ = _TABLE_HELP.format(
        form=form, format_name=format_name, suffix=suffix, content=content
    )
    return expand_options(command)


app.command("hub")(export_hub.command)
app.command("every-eval-ever")(export_every_eval_ever.command)
for _format in _FORMATS:
    app.command(_format[0])(_table_command(*_format))
