"""How `lm-eval-bayes run` tells what the harness found wrong, or could not write."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lm_eval_bayes.errors import LmEvalBayesError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lm_eval_bayes.harness.adaptive.rounds import Rounds


@contextmanager
def plain_errors(rounds: Rounds | None = None) -> Iterator[None]:
    """Tell in one sentence what the harness finds wrong before the first trial is asked for.

    What goes wrong while a model is loaded or asked is no matter of arguments alone, and keeps
    its traceback; of the others the log has it at level DEBUG.
    """
    from lm_eval_bayes.harness.logs import get_logger
    from lm_eval_bayes.harness.plain_errors import EXTRAS

    try:
        yield
    except LmEvalBayesError:
        raise
    except Exception as error:
        stage = "tasks" if rounds is None else rounds.stage
        name = error.name if isinstance(error, ModuleNotFoundError) else None
        if stage in ("model", "requests") and name in EXTRAS:
            raise LmEvalBayesError(
                f"the model's backend needs the package `{name}`, which is not installed; "
                f"run pip install 'lm-eval-bayes[{EXTRAS[name]}]'"
            ) from error
        if stage not in ("tasks", "requests"):
            raise
        get_logger("lm_eval_bayes.harness.run").debug(
            "the run stopped before sampling", exc_info=error
        )
        raise LmEvalBayesError(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    told = " ".join(str(error).split())
    if isinstance(error, (ValueError, OSError, AssertionError)) and told:
        return told
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


def check_written(rounds: Rounds, output_path: str | None, store: str | None) -> None:
    """See that the harness wrote what it should: it only logs that it could not.

    Raises
    ------
    LmEvalBayesError
        If the results or logged samples are missing or cut off.
    """
    missing = rounds.missing_output()
    if missing is None:
        return
    again = "another --output_path"
    if store is None:
        again += f" and --store {rounds.store}"
    raise LmEvalBayesError(
        f"results could not be written to {output_path} ({missing} is missing or cut off); all "
        f"trials are in {rounds.store}: give the same command again with {again}"
    )
