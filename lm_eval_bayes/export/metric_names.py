"""What metrics are called where results of many evaluations are gathered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric as others find it.

    Attributes
    ----------
    id : str
        What it is joined by: a name of its own where nobody else means the same by it.
    kind : str
        Its family.
    description : str
        What it is, in one sentence.
    parameters : mapping
        Its numbers, N among them.
    """

    id: str
    kind: str
    description: str
    parameters: Mapping[str, str | int | float | bool | None]


_FAMILY: dict[str, tuple[str, str, str]] = {
    "pass@": (
        "pass_at_k",
        "pass_rate",
        "Chance that at least one of {k} trials is right: 1 - C(N-c,k)/C(N,k) [arXiv 2107.03374].",
    ),
    "pass^": (
        "pass_hat_k",
        "pass_rate",
        "Chance that all of {k} trials are right: C(c,k)/C(N,k) [arXiv 2406.12045].",
    ),
    "g-pass@": (
        "g_pass_at_k",
        "pass_rate",
        "Chance that at least the share {tau} of {k} trials is right [arXiv 2412.13147].",
    ),
    "mg-pass@": (
        "mg_pass_at_k",
        "pass_rate",
        "Mean of G-Pass@{k} over thresholds from one half to one [arXiv 2412.13147].",
    ),
    "maj@": (
        "maj_at_k",
        "accuracy",
        "Chance that the most frequent answer of {k} trials is right.",
    ),
}
_ROW = re.compile(r"(pass@|pass\^|g-pass@|mg-pass@|maj@)(\d+)(?:_([0-9.e-]+))?")
#: Ids that mean the same elsewhere; others are ours.
_SHARED = frozenset({"pass_at_k"})
_OURS = "lm-eval-bayes"


def metric_of(name: str, n_range: tuple[int, int], binary: bool = True) -> Metric:
    """Return what a row of a summary is.

    Parameters
    ----------
    name : str
        The row, such as "pass@4" or "hbayes@8_population".
    n_range : tuple of int
        The fewest and the most trials of a question.
    binary : bool
        Whether a trial is right or wrong and nothing else.

    Examples
    --------
    >>> metric_of("g-pass@4_0.5", (8, 8)).parameters
    {'k': 4, 'n': 8, 'tau': 0.5}
    >>> metric_of("avg@6 to 8", (6, 8)).parameters, metric_of("avg@8", (8, 8)).id
    ({'n': 6, 'n_max': 8}, 'accuracy')
    >>> metric_of("hbayes@8_population", (8, 8)).parameters["scope"]
    'population'
    """
    least, most = n_range
    n: dict[str, str | int | float | bool | None] = {"n": least}
    if most != least:
        n["n_max"] = most
    found = _ROW.fullmatch(name)
    if found is not None:
        stem, k, tau = found[1], int(found[2]), found[3]
        slug, kind, told = _FAMILY[stem]
        parameters = {"k": k, **n, **({} if tau is None else {"tau": float(tau)})}
        own = slug if slug in _SHARED else f"{_OURS}.{slug}"
        return Metric(own, kind, told.format(k=k, tau=tau), parameters)
    score = "share of right trials" if binary else "score of the trials"
    if name.startswith("avg@"):
        told = f"Mean {score} over all questions, each question the same."
        return Metric(
            "accuracy" if binary else f"{_OURS}.avg_at_n",
            "accuracy" if binary else "rubric_score",
            told,
            n,
        )
    learned, population = name.startswith("hbayes@"), name.endswith("_population")
    slug = ("hbayes" if learned else "bayes") + "_at_n" + ("_population" if population else "")
    about = "questions like these" if population else "these questions"
    prior = (
        "a prior learned across the questions"
        if learned
        else "a uniform prior for every question [arXiv 2510.04265]"
    )
    return Metric(
        f"{_OURS}.{slug}",
        "accuracy" if binary else "rubric_score",
        f"Posterior mean of the mean score on {about}, under {prior}.",
        {
            **n,
            "prior": "learned" if learned else "uniform",
            "scope": "population" if population else "benchmark",
        },
    )
