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
    formats,
    noise,
    plan,
    rank,
    report,
    rubric,
    run,
    simulate,
    store,
    summary,
    verify,
    wrap,
)
from lm_eval_bayes.cli.ui.errors import EXIT_CODES, PlainErrorsGroup
from lm_eval_bayes.cli.ui.gate import GateCommand
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

app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    run.command
)
_MODULES = (
    summary,
    compare,
    rank,
    noise,
    plan,
    report,
    convergence,
    simulate,
    anchors,
    rubric,
    verify,
)
for _module in _MODULES:
    _class = GateCommand if _module is compare else None
    app.command(_module.__name__.rpartition(".")[2], cls=_class)(_module.command)
app.add_typer(store.app, name="store")
app.add_typer(export.app, name="export")
app.command("wrap")(wrap.command)
app.command("formats")(formats.command)
app.command("doctor")(doctor.command)

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
