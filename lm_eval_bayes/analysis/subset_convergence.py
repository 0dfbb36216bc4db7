"""Convergence@n of subsets of a board: the design of [Hariri 2026, Fig. 6 and Tables 8–10]."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray
from lm_eval_bayes.stats.convergence.convergence import Gold, convergence_at_n
from lm_eval_bayes.stats.convergence.prefix_scores import Scheme

#: Subsets of a size, where their number is not given, and the most that may be asked for.
DEFAULT_COUNT, _MOST = 20, 10_000
#: Up to this many subsets of a size are listed and chosen from.
_LISTED = 100_000
_FORM = re.compile(r"(\d{1,4})(?:x(\d{1,5}))?")


@dataclass(frozen=True)
class SubsetConvergence(Record):
    """Convergence@n of a subset of the models.

    Attributes
    ----------
    models : tuple of str
        The subset.
    mean : float or None
        Mean convergence@n of the replicates that converge; None where none does.
    not_converged : float
        Share of replicates that do not converge.
    """

    models: tuple[str, ...]
    mean: float | None
    not_converged: float


@dataclass(frozen=True)
class SubsetSize(Record):
    """Convergence@n of the subsets of a size.

    Attributes
    ----------
    size : int
        Models of a subset.
    subsets : tuple of SubsetConvergence
        The subsets that were drawn, without repetition.
    """

    size: int
    subsets: tuple[SubsetConvergence, ...]

    @property
    def means(self) -> tuple[float, ...]:
        """The subsets' means, without those in which no replicate converges."""
        return tuple(subset.mean for subset in self.subsets if subset.mean is not None)

    @property
    def mean(self) -> float | None:
        """Mean over the subsets of their mean convergence@n."""
        return float(np.mean(self.means)) if self.means else None

    @property
    def not_converged(self) -> float:
        """Mean over the subsets of the share of replicates that do not converge."""
        return float(np.mean([subset.not_converged for subset in self.subsets]))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the means over the subsets as plain JSON types."""
        return {**super().to_dict(), "mean": self.mean, "not_converged": self.not_converged}


def subset_sizes(text: str) -> dict[int, int]:
    """Parse sizes of subsets, each with the number of subsets to draw.

    Raises
    ------
    InvalidInputError
        If the text has another form.

    Examples
    --------
    >>> subset_sizes("5x50,10,15")
    {5: 50, 10: 20, 15: 20}
    """
    sizes: dict[int, int] = {}
    for part in text.split(","):
        match = _FORM.fullmatch(part.strip())
        size, count = (0, 0) if match is None else (int(match[1]), int(match[2] or DEFAULT_COUNT))
        if size < 2 or not 1 <= count <= _MOST:
            rule = (
                "be sizes of at least 2, such as 5,10,15, each with the number of subsets if it "
                f"is not {DEFAULT_COUNT}: 5x50,10,15"
            )
            raise InvalidInputError.of("subsets", "format", rule, text)
        sizes[size] = count
    return sizes


def subset_convergence(
    tensor: IntArray,
    models: Sequence[str],
    sizes: Mapping[int, int],
    *,
    weights: FloatArray | None = None,
    replicates: int = 2000,
    scheme: Scheme = "column",
    gold: Gold = "all",
    seed: int = 0,
) -> tuple[SubsetSize, ...]:
    """Return convergence@n of the ranking by bayes@N for subsets of the models.

    Parameters
    ----------
    tensor : array of int, shape (L, M, N)
        Outcomes of the L models.
    models : sequence of str
        Their names.
    sizes : mapping of int to int
        Numbers of models, 2 to L, and of subsets to draw; if there are no more than that, all
        subsets of the size are taken.
    weights, replicates, scheme, gold
        As in `lm_eval_bayes.convergence_at_n`.
    seed : int
        Of the subsets and of the replicates.

    Raises
    ------
    InvalidInputError
        If a size exceeds L, or another argument breaks its rule.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> tensor = (rng.random((4, 20, 16)) < np.linspace(0.2, 0.8, 4)[:, None, None]).astype(int)
    >>> pairs, all_models = subset_convergence(tensor, "abcd", {2: 20, 4: 20}, replicates=200)
    >>> len(pairs.subsets), pairs.subsets[0].models, len(all_models.subsets)
    (6, ('a', 'b'), 1)
    >>> pairs.mean < all_models.mean
    True
    """
    results = []
    for size, count in sizes.items():
        if size > len(models):
            rule = f"be sizes of at most {len(models)}, the number of models"
            raise InvalidInputError.of("subsets", "range", rule, size)
        subsets = []
        for chosen in _draw_subsets(len(models), size, count, seed):
            convergence = convergence_at_n(
                tensor[list(chosen)],
                weights=weights,
                replicates=replicates,
                scheme=scheme,
                gold=gold,
                seed=seed,
            )
            names = tuple(models[i] for i in chosen)
            subsets.append(SubsetConvergence(names, convergence.mean, convergence.not_converged))
        results.append(SubsetSize(size, tuple(subsets)))
    return tuple(results)


def _draw_subsets(n_models: int, size: int, count: int, seed: int) -> list[tuple[int, ...]]:
    """Return up to `count` different subsets of so many models, in order."""
    n_subsets = comb(n_models, size)
    rng = np.random.default_rng([seed, size])
    if n_subsets <= _LISTED:
        listed = list(combinations(range(n_models), size))
        if n_subsets <= count:
            return listed
        return [listed[i] for i in np.sort(rng.choice(n_subsets, count, replace=False))]
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < count:
        chosen = rng.choice(n_models, size, replace=False)
        drawn.add(tuple(np.sort(chosen).tolist()))
    return sorted(drawn)
