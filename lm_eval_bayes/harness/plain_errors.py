"""Print this package's errors as one sentence instead of a traceback."""

from __future__ import annotations

import sys
from types import TracebackType

from lm_eval_bayes.errors import LmEvalBayesError


def install() -> None:
    """Show an uncaught error of ours as one line; leave every other error as it was."""
    previous = sys.excepthook
    if getattr(previous, "_plain_errors", False):
        return

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if issubclass(kind, LmEvalBayesError):
            sys.stderr.write(f"lm-eval-bayes: {error}\n")
        else:
            previous(kind, error, traceback)

    hook._plain_errors = True  # type: ignore[attr-defined]
    sys.excepthook = hook
