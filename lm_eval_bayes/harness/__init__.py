"""The only room that imports lm_eval: registration, task classes, grading, models.

This module holds the loggers of the room and the paths that older YAML files name: importing it
makes those importable, and the first use of each gives a :class:`FutureWarning` with the path to
write instead.
"""

import importlib
import logging
import sys
import types
import warnings


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


#: Old module -> attributes that YAML files name in it -> their present paths.
MOVED = {
    "lm_eval_bayes.harness.tasks": {
        "RepeatedSamplingTask": "lm_eval_bayes.tasks.RepeatedSamplingTask"
    },
    "lm_eval_bayes.harness.rubrics.task": {"RubricTask": "lm_eval_bayes.tasks.RubricTask"},
    "lm_eval_bayes.harness.rows": {
        "AVG_AT_N": "lm_eval_bayes.tasks.AVG_AT_N",
        "BAYES_AT_N": "lm_eval_bayes.tasks.BAYES_AT_N",
        "HBAYES_AT_N": "lm_eval_bayes.tasks.HBAYES_AT_N",
    },
    "lm_eval_bayes.harness.demo": {"load": "lm_eval_bayes.tasks.demo_questions"},
    "lm_eval_bayes.harness.grading": {
        "process_results_aime": "lm_eval_bayes.tasks.process_results_aime",
        "process_results_math": "lm_eval_bayes.tasks.process_results_math",
    },
}

#: Old paths whose warning has been given in this process.
_warned: set[str] = set()


def moved_attribute(module: str, name: str) -> object:
    """Return the object that had the path `module.name`, with a warning at the first use.

    Raises
    ------
    AttributeError
        If `module` never had a public attribute `name`.
    """
    target = MOVED[module].get(name)
    if target is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    path = f"{module}.{name}"
    if path not in _warned:
        _warned.add(path)
        warnings.warn(f"{path} has moved: write {target}", FutureWarning, stacklevel=3)
    owner, _, attribute = target.rpartition(".")
    return getattr(importlib.import_module(owner), attribute)


class _MovedModule(types.ModuleType):
    """A module that has moved; it imports nothing until an attribute is read."""

    def __getattr__(self, name: str) -> object:
        return moved_attribute(self.__name__, name)


for _module in MOVED:
    if _module != "lm_eval_bayes.harness.grading":  # a package today, with a __getattr__ of its own
        sys.modules.setdefault(_module, _MovedModule(_module, "A module that has moved."))
