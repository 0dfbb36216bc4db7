"""How a command ends when something is wrong: one sentence, an exit code, no traceback."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from lm_eval_bayes.cli.output import warn
from lm_eval_bayes.errors import LmEvalBayesError

#: Something that was checked is not as it should be.
FOUND = 1
#: A command was given wrongly, or could not be carried out.
ERROR = 2
#: Ctrl-C.
INTERRUPTED = 130

EXIT_CODES = """\b
Exit codes:
  0    done
  1    done, and something that was checked is not as it should be
  2    not done: wrong arguments, or an error, told in one sentence
  130  stopped by Ctrl-C
"""


class PlainErrorsGroup(TyperGroup):
    """A group of commands that tells every deliberate error of this package in one sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except LmEvalBayesError as error:
            warn(f"error: {error}")
            raise typer.Exit(ERROR) from None
        except KeyboardInterrupt:
            warn("stopped")
            raise typer.Exit(INTERRUPTED) from None
