"""Loggers below the harness's own, with its format, level and switches."""

from __future__ import annotations

import logging


def visible(text: str) -> str:
    r"""Return a text on one line, with control characters escaped.

    Examples
    --------
    >>> print(visible("boom \x1b[31mred\n twice"))
    boom \x1b[31mred twice
    """
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def get_logger(name: str) -> logging.Logger:
    """Return a module's logger as a child of the harness's logger.

    The harness formats and filters what is logged under ``lm_eval``; a logger of another
    name would print bare warnings and never an information.

    Examples
    --------
    >>> get_logger("lm_eval_bayes.harness.task.repeated_sampling").name
    'lm_eval.bayes.task.repeated_sampling'
    """
    return logging.getLogger("lm_eval.bayes" + name.removeprefix("lm_eval_bayes.harness"))
