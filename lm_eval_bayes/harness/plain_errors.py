"""Print this package's errors, and a missing extra, as one sentence instead of a traceback."""

from __future__ import annotations

import sys
from types import TracebackType

from lm_eval_bayes.errors import LmEvalBayesError

#: Which extra brings a module that a backend of the harness imports.
EXTRAS = {
    "torch": "hf",
    "transformers": "hf",
    "accelerate": "hf",
    "peft": "hf",
    "vllm": "vllm",
    "aiohttp": "api",
    "requests": "api",
    "tenacity": "api",
    "tiktoken": "api",
}


def install() -> None:
    """Show an uncaught error of ours as one line; leave every other error as it was.

    A missing backend counts as ours only on a command line that names a task of this package.
    """
    previous = sys.excepthook
    if getattr(previous, "_plain_errors", False):
        return

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if issubclass(kind, LmEvalBayesError):
            sys.stderr.write(f"lm-eval-bayes: {error}\n")
        elif isinstance(error, ModuleNotFoundError) and error.name in EXTRAS and _is_ours():
            extra = EXTRAS[error.name]
            sys.stderr.write(
                f"lm-eval-bayes: the model's backend needs the package `{error.name}`, which is "
                f"not installed; run pip install 'lm-eval-bayes[{extra}]'\n"
            )
        else:
            previous(kind, error, traceback)

    hook._plain_errors = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def _is_ours() -> bool:
    return any("_bayes" in word for word in sys.argv[1:])
