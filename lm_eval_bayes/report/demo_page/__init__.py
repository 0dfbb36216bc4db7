"""The interactive page as one self-contained HTML file."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from html import escape
from importlib import resources
from math import log10
from typing import Literal, TypeAlias

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import as_real, check_integer, check_option

DemoPrior: TypeAlias = Literal["uniform", "jeffreys", "learned"]
PRIORS: tuple[DemoPrior, ...] = ("uniform", "jeffreys", "learned")
#: Credible levels of the page's list.
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
#: Maxima of the sliders, the same as in page.html.
MAX_MODELS, MAX_QUESTIONS, MAX_TRIALS, MAX_K = 8, 100, 128, 32
_PLACEHOLDER = re.compile(r"@@(\w+)@@")


@dataclass(frozen=True)
class DemoSettings:
    """Initial settings of the page.

    Attributes
    ----------
    models : int
        L, 2 to 8.
    questions : int
        M, 5 to 100.
    trials : int
        N, 1 to 128.
    k : int
        k of Pass@k, 1 to 32.
    mean : float
        Mean true score of the models, .03 to .97.
    gap : float
        Difference of true scores between neighbours, 0 to .1.
    strength : float
        s of the questions' distribution Beta(s·m, s(1−m)), .1 to 100.
    prior : {"uniform", "jeffreys", "learned"}
        Prior of every question.
    level : float
        Credible level: .5, .8, .9, .95 or .99.
    seed : int
        Seed of the simulated trials, below a million.

    Raises
    ------
    InvalidInputError
        If a setting is outside its range.

    Examples
    --------
    >>> DemoSettings(models=12)
    Traceback (most recent call last):
    lm_eval_bayes.errors.InvalidInputError: `models` must be an integer of at least 2 and at most \
8; got 12
    """

    models: int = 5
    questions: int = 30
    trials: int = 8
    k: int = 4
    mean: float = 0.15
    gap: float = 0.03
    strength: float = 0.8
    prior: DemoPrior = "uniform"
    level: float = 0.95
    seed: int = 1

    def __post_init__(self) -> None:
        check_integer("models", self.models, 2, MAX_MODELS)
        check_integer("questions", self.questions, 5, MAX_QUESTIONS)
        check_integer("trials", self.trials, 1, MAX_TRIALS)
        check_integer("k", self.k, 1, MAX_K)
        check_integer("seed", self.seed, 0, 999_999)
        check_option("prior", self.prior, PRIORS)
        for name, low, high in (("mean", 0.03, 0.97), ("gap", 0.0, 0.1), ("strength", 0.1, 100.0)):
            value = getattr(self, name)
            number = as_real(value)
            if number is None or not low - 1e-9 <= number <= high + 1e-9:
                raise InvalidInputError.of(
                    name, "type", f"be a number from {low:g} to {high:g}", value
                )
        if self.level not in LEVELS:
            rule = f"be one of {', '.join(map(str, LEVELS))}"
            raise InvalidInputError.of("level", "choice", rule, self.level)


def demo_page(settings: DemoSettings | None = None) -> str:
    """Return the page as a self-contained HTML document.

    Parameters
    ----------
    settings : DemoSettings, optional
        Initial settings of its controls.

    Examples
    --------
    >>> page = demo_page()
    >>> page.splitlines()[0], "http://" in page.replace("http://www.w3.org/2000/svg", "")
    ('<!doctype html>', False)
    """
    from lm_eval_bayes import __version__

    start = asdict(settings or DemoSettings())
    start["spread"] = log10(start.pop("strength"))
    contents = {
        "version": escape(__version__),
        "start": json.dumps(start, allow_nan=False).replace("<", "\\u003c"),
        "style": _file("page.css"),
        "special": _file("special.js"),
        "kernels": _file("kernels.js"),
        "drawings": _file("drawings.js"),
        "page": _file("page.js"),
    }
    return _PLACEHOLDER.sub(lambda match: contents[match[1]], _file("page.html"))


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8").rstrip("\n")
