"""`lm-eval-bayes`: the command line of this package.

Every command imports what it needs when it runs, so that `--help` is fast and imports neither
numpy, the harness nor torch.
"""

from __future__ import annotations

from typing import Annotated

import typer

from lm_eval_bayes.cli.commands import (
    anchors,
    compare,
    convergence,
    doctor,
    export,
    gate,
    noise,
    plan,
    rank,
    report,
    rubric,
    run,
    simulate,
    store,
    study_rank,
    summary,
    verify,
)
from lm_eval_bayes.cli.ui.errors import EXIT_CODES, CommandGroup, PlainErrorsGroup
from lm_eval_bayes.cli.ui.options import HelpCommand
from lm_eval_bayes.cli.ui.output import say

app = typer.Typer(
    name="lm-eval-bayes",
    cls=PlainErrorsGroup,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
    help="Repeated sampling and Bayesian posteriors for the lm-evaluation-harness.",
)

# -- the commands, in the order in which --help lists them ------------------------------------

app.command(
    "run",
    cls=HelpCommand,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(run.command)
for _module in (summary, compare, rank, plan, noise, report, gate):
    app.command(_module.__name__.rpartition(".")[2], cls=HelpCommand)(_module.command)
app.command("doctor", cls=HelpCommand)(doctor.command)

#: Groups of commands, with their help.
_GROUPS = {
    "export": (
        "Write leaderboard submissions, or the leaderboard as a table.",
        {"table": export.table, "hub": export.hub, "every-eval-ever": export.every_eval_ever},
    ),
    "store": (
        "Count, verify, merge, export and prune trial stores.",
        {c.__name__: c for c in (store.info, store.merge, store.export, store.prune)},
    ),
    "study": (
        "Study how scores and ranks come about.",
        {m.__name__.rpartition(".")[2]: m.command for m in (convergence, simulate, anchors)}
        | {"rank": study_rank.command, "rubric": rubric.command, "verify": verify.command},
    ),
}
for _group, (_help, _commands) in _GROUPS.items():
    _app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None, help=_help)
    for _name, _command in _commands.items():
        _app.command(_name, cls=HelpCommand)(_command)
    app.add_typer(_app, name=_group)

#: Names of the commands.
COMMANDS = frozenset(typer.main.get_group(app).commands)

# ----------------------------------------------------------------------------------------------


def _version(requested: bool) -> None:
    if requested:
        from lm_eval_bayes import __version__

        say(f"lm-eval-bayes {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
