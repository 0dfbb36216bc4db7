"""Simulated benchmarks: models of known true scores, and files of their simulated outcomes."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.simulation.mimics import mimics_with_means, simulate_outcomes
from lm_eval_bayes.stats.validation import (
    FloatArray,
    IntArray,
    as_real,
    check_integer,
    check_sequence,
)

#: Task name of simulated outcomes.
TASK = "simulated"
_MOST_MODELS = 100


@dataclass(frozen=True)
class SimulatedBenchmark:
    """Models of known true scores, whose questions have a common Beta distribution.

    Attributes
    ----------
    means : tuple of float
        The true scores of L models, best first, strictly between 0 and 1.
    strength : float
        s: the questions of a model have p ~ Beta(s·m, s(1−m)); for small s, p is near 0 or 1.
    n_questions : int
        M.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.
    """

    means: tuple[float, ...]
    strength: float
    n_questions: int

    def __post_init__(self) -> None:
        means = check_sequence("means", self.means, "be true scores", _MOST_MODELS)
        if not means or not all(
            (number := as_real(mean)) is not None and 0.0 < number < 1.0 for mean in means
        ):
            rule = "be true scores strictly between 0 and 1"
            raise InvalidInputError.of("means", rule, list(means))
        strength = as_real(self.strength)
        if strength is None or not 1e-3 <= strength <= 1e6:
            raise InvalidInputError.of("strength", "be a number from 0.001 to 1e6", self.strength)
        check_integer("questions", self.n_questions, 1, 100_000)
        object.__setattr__(self, "means", tuple(sorted(map(float, means), reverse=True)))

    @classmethod
    def even(
        cls, n_models: int, mean: float, gap: float, strength: float, n_questions: int
    ) -> SimulatedBenchmark:
        """Return models of evenly spaced true scores around a mean.

        Raises
        ------
        InvalidInputError
            If they do not all lie between 0 and 1.

        Examples
        --------
        >>> [round(mean, 3) for mean in SimulatedBenchmark.even(3, 0.4, 0.05, 2.0, 30).means]
        [0.45, 0.4, 0.35]
        """
        n_models = check_integer("models", n_models, 1, _MOST_MODELS)
        spacing = as_real(gap)
        middle = (n_models - 1) / 2
        if spacing is None or not 0.0 <= spacing < 1.0:
            raise InvalidInputError.of("gap", "be a number from 0 to 1", gap)
        ends = mean - middle * spacing, mean + middle * spacing
        if not (ends[0] > 0.0 and ends[1] < 1.0):
            rule = (
                f"leave {n_models} models around {mean:g} strictly between 0 and 1 "
                f"({ends[0]:.3g} to {ends[1]:.3g})"
            )
            raise InvalidInputError.of("gap", rule, gap)
        means = [mean + spacing * (middle - i) for i in range(n_models)]
        return cls(tuple(means), strength, n_questions)

    @property
    def names(self) -> tuple[str, ...]:
        """The models' names: a letter or number, and the true score."""
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        short = [letters[i] if i < 26 else str(i + 1) for i in range(len(self.means))]
        return tuple(f"{name} {mean:.3f}" for name, mean in zip(short, self.means, strict=True))

    def probabilities(self) -> FloatArray:
        """Return p of every model and question, (L, M); row means are exactly the true scores."""
        return mimics_with_means(self.means, self.n_questions, strength=self.strength)

    def outcomes(self, n_trials: int, seed: int = 0) -> IntArray:
        """Simulate `n_trials` trials of every question, (L, M, N)."""
        return simulate_outcomes(self.probabilities(), n_trials, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "models": list(self.names),
            "means": list(self.means),
            "strength": self.strength,
            "questions": self.n_questions,
        }


def check_trials(trials: Sequence[int]) -> list[int]:
    """Return numbers of trials in ascending order.

    Raises
    ------
    InvalidInputError
        If they break their rule.
    """
    rule = "be whole numbers from 1 to 100,000, at least one"
    numbers = check_sequence("trials", trials, rule, 100)
    ascending = sorted({check_integer("trials", n, 1, 100_000) for n in numbers})
    if not ascending:
        raise InvalidInputError.of("trials", rule, "none")
    return ascending


def matrix_file(benchmark: SimulatedBenchmark, n_trials: int, seed: int, suffix: str) -> bytes:
    """Return a file of simulated outcomes that `read_runs` reads, ".npz" or ".csv".

    The NPZ file holds R (L, M, N) with `models`, `question_ids` and `task`, and the true values
    `p` (L, M) and `true_scores` (L,). The CSV file has a row for every model and question, and a
    column for every trial.

    Raises
    ------
    InvalidInputError
        If the suffix is another, or there would be more than 200 million trials.

    Examples
    --------
    >>> benchmark = SimulatedBenchmark((0.7, 0.3), 2.0, 2)
    >>> print(matrix_file(benchmark, 3, 5, ".csv").decode().strip())
    task,model,question,trial 1,trial 2,trial 3
    simulated,A 0.700,q1,0,0,0
    simulated,A 0.700,q2,1,1,1
    simulated,B 0.300,q1,0,1,1
    simulated,B 0.300,q2,0,0,1
    """
    if suffix not in (".npz", ".csv"):
        raise InvalidInputError.of("output", "end with .npz or .csv", suffix)
    R = benchmark.outcomes(n_trials, seed)
    ids = [f"q{i + 1}" for i in range(benchmark.n_questions)]
    if suffix == ".npz":
        output = io.BytesIO()
        np.savez_compressed(
            output,
            R=R.astype(np.int8),
            models=np.array(benchmark.names),
            question_ids=np.array(ids),
            task=np.array(TASK),
            p=benchmark.probabilities(),
            true_scores=np.array(benchmark.means),
        )
        return output.getvalue()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["task", "model", "question", *(f"trial {i + 1}" for i in range(n_trials))])
    for name, questions in zip(benchmark.names, R.tolist(), strict=True):
        for question, outcomes in zip(ids, questions, strict=True):
            writer.writerow([TASK, name, question, *outcomes])
    return text.getvalue().encode()
