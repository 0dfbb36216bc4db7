"""`lm-eval-bayes export`: results as others take them, and the leaderboard as a table."""

from __future__ import annotations

import typer

from lm_eval_bayes.cli.commands import export_hub, export_records
from lm_eval_bayes.cli.commands.export_tables import FORMATS, table_command

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Write results for leaderboards, or as tables.",
)

app.command("hub")(export_hub.command)
app.command("every-eval-ever")(export_records.command)
for _form, _what, _suffix, _about in FORMATS:
    app.command(_form)(table_command(_form, _what, _suffix, _about))
