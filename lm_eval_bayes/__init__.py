"""Honest posteriors for repeated sampling in the lm-evaluation-harness.

Outcomes in, posteriors out; decisions about models; and the saved runs that outcomes come from.

>>> import lm_eval_bayes as leb
>>> outcomes = leb.Outcomes.from_matrix([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
>>> posterior = leb.bayes_at_n(outcomes)
>>> interval = posterior.interval(0.95, method="exact")
>>> round(posterior.mu, 3), round(interval.low, 3), round(interval.high, 3)
(0.643, 0.399, 0.858)
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lm_eval_bayes._api import *  # noqa: F403  what it lists

__version__ = "0.1.0"


# Nothing is imported here, and numpy and scipy only when the first name is asked for: commands
# that print help start quickly, and Ctrl-C finds them where they can tell of it.
def _public() -> dict[str, object]:
    """Return what is public, by name."""
    from importlib import import_module

    api = vars(import_module("lm_eval_bayes._api"))
    return {name: api[name] for name in sorted(api) if not name.startswith("_")}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return ["__version__", *_public()]
    if not name.startswith("_") and name in (public := _public()):
        return globals().setdefault(name, public[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_public(), *(name for name in globals() if name.startswith("__"))})
