"""The interactive page: settings in, one HTML file without any other file out."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from html import escape
from importlib import resources
from typing import Literal, TypeAlias

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import as_real, check_integer, check_option

DemoPrior: TypeAlias = Literal["uniform", "jeffreys", "learned"]
PRIORS: tuple[DemoPrior, ...] = ("uniform", "jeffreys", "learned")
#: What the page's list of levels offers.
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
#: Ends of the sliders, which the page has as well.
MOST_MODELS, MOST_QUESTIONS, MOST_TRIALS, MOST_K = 8, 100, 128, 32
_SLOT = re.compile(r"@@(\w+)@@")


@dataclass(frozen=True)
class DemoSettings:
    """Where the page's controls stand when it is opened.

    Attributes
    ----------
    models : int
        L, 2 to 8.
    questions : int
        M, 5 to 100.
    trials : int
        N, 1 to 128.
    k : int
        Of Pass@k, 1 to 32.
    mean : float
        The models' average true score, .03 to .97.
    gap : float
        Distance between neighbours, 0 to .1.
    strength : float
        s of the Beta(s·m, s(1−m)) that the questions are spread by, .1 to 100.
    prior : {"uniform", "jeffreys", "learned"}
        Of each question.
    level : float
        .5, .8, .9, .95 or .99.
    seed : int
        Of the tosses, below a million.

    Raises
    ------
    InvalidInputError
        If one of them is outside its range.

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
        check_integer("models", self.models, 2, MOST_MODELS)
        check_integer("questions", self.questions, 5, MOST_QUESTIONS)
        check_integer("trials", self.trials, 1, MOST_TRIALS)
        check_integer("k", self.k, 1, MOST_K)
        check_integer("seed", self.seed, 0, 999_999)
        check_option("prior", self.prior, PRIORS)
        for name, low, high in (("mean", 0.03, 0.97), ("gap", 0.0, 0.1), ("strength", 0.1, 100.0)):
            value = getattr(self, name)
            number = as_real(value)
            if number is None or not low - 1e-9 <= number <= high + 1e-9:
                raise InvalidInputError.of(name, f"be a number from {low:g} to {high:g}", value)
        if self.level not in LEVELS:
            rule = f"be one of {', '.join(map(str, LEVELS))}, which the page has"
            raise InvalidInputError.of("level", rule, self.level)


def demo_page(settings: DemoSettings | None = None) -> str:
    """Return the page as one HTML document that needs no network and no other file.

    Parameters
    ----------
    settings : DemoSettings, optional
        Where its controls stand.

    Examples
    --------
    >>> page = demo_page()
    >>> page.splitlines()[0], "http://" in page.replace("http://www.w3.org/2000/svg", "")
    ('<!doctype html>', False)
    """
    from math import log10

    from lm_eval_bayes import __version__

    start = asdict(settings or DemoSettings())
    start["spread"] = log10(start.pop("strength"))
    slots = {
        "version": escape(__version__),
        "start": json.dumps(start, allow_nan=False).replace("<", "\\u003c"),
        "style": _file("page.css"),
        "special": _file("special.js"),
        "kernels": _file("kernels.js"),
        "drawings": _file("drawings.js"),
        "page": _file("page.js"),
    }
    return _SLOT.sub(lambda slot: slots[slot[1]], _file("page.html"))


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8").rstrip("\n")
