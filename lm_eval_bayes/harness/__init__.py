"""The only room that imports lm_eval: registration, task classes, grading, models.

This module holds the loggers of the room.
"""

import logging


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
