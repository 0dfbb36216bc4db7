"""Bootstrap replicates of trials, in blocks that each have their own seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import numpy as np

from lm_eval_bayes.stats.validation import IntArray, check_option

Scheme: TypeAlias = Literal["column", "row"]

SCHEMES: tuple[Scheme, ...] = ("column", "row")

#: Replicates worked on at a time: their running counts stay in the cache.
BLOCK = 256


def check_scheme(scheme: object) -> Scheme:
    """Return the bootstrap scheme.

    Raises
    ------
    InvalidInputError
        If it is neither "column" nor "row".
    """
    return check_option("scheme", scheme, SCHEMES)


def draw_blocks(
    scheme: Scheme, shape: tuple[int, int, int], replicates: int, seed: int
) -> Iterator[IntArray]:
    """Draw the trials of all replicates with replacement, a block at a time.

    Parameters
    ----------
    scheme : {"column", "row"}
        "column": N trial numbers a replicate, for all questions. "row": N for each question.
    shape : tuple of int
        L, M, N; all L models take the same draw.
    replicates : int
        How many replicates.
    seed : int
        Together with a block's number it decides what is drawn.

    Yields
    ------
    array of int, shape (B, 1, N) or (B, M, N)
        Trial numbers in 0..N−1.

    Examples
    --------
    >>> [drawn.shape for drawn in draw_blocks("row", (2, 3, 5), 300, seed=7)]
    [(256, 3, 5), (44, 3, 5)]
    """
    _, n_questions, n_trials = shape
    rows = 1 if scheme == "column" else n_questions
    for block, start in enumerate(range(0, replicates, BLOCK)):
        rng = np.random.default_rng([seed, block])
        size = min(BLOCK, replicates - start)
        yield rng.integers(0, n_trials, (size, rows, n_trials))
