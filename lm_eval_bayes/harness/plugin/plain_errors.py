"""Print this package's errors, and a missing extra, as one sentence instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.harness.plugin import patches

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
    """Show an uncaught error of this package as one line; leave every other error as it was.

    A missing backend counts as one only on a command line that names a task of this package.
    """
    patches.install(patches.EXCEPTHOOK, _one_line)


def _one_line(previous: Callable[..., None]) -> Callable[..., None]:
    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if issubclass(kind, LmEvalBayesError):
            sys.stderr.write(f"lm-eval-bayes: {error}\n")
        elif isinstance(error, ModuleNotFoundError) and error.name in EXTRAS and _names_a_task():
            extra = EXTRAS[error.name]
            sys.stderr.write(
                f"lm-eval-bayes: the model's backend needs the package `{error.name}`, which is "
                f"not installed; run pip install 'lm-eval-bayes[{extra}]'\n"
            )
        else:
            previous(kind, error, traceback)

    return hook


def _names_a_task() -> bool:
    return any("_bayes" in word for word in sys.argv[1:])
