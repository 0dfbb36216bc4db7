"""Honest posteriors for repeated sampling in the lm-evaluation-harness.

The numeric API, numpy and scipy only: outcomes in, posteriors and estimates out.

>>> import lm_eval_bayes as leb
>>> outcomes = leb.Outcomes.from_matrix([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
>>> posterior = leb.bayes_at_n(outcomes)
>>> interval = posterior.interval(0.95, method="exact")
>>> round(posterior.mu, 3), round(interval.low, 3), round(interval.high, 3)
(0.643, 0.398, 0.856)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lm_eval_bayes._api import *  # noqa: F403  what it lists

__version__ = "0.1.0"


# numpy and scipy are loaded when the first name is asked for, not by commands that print help.
def __getattr__(name: str) -> Any:
    if name == "__all__" or not name.startswith("_"):
        api = import_module("lm_eval_bayes._api")
        if name == "__all__":
            return ["__version__", *api.__all__]
        if name in api.__all__:
            return globals().setdefault(name, getattr(api, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
