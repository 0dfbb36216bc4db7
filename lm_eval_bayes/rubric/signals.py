"""The signals of every trial as columns of numbers; NaN where a signal is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import FloatArray, IntArray

#: The signals of the twelve schemata, with a description of each.
SIGNALS = MappingProxyType(
    {
        "is_correct": "whether the answer is right, 0 or 1",
        "has_box": "whether the text holds a closed, non-empty \\boxed{}, 0 or 1",
        "token_ratio": "tokens of the completion over the run's max_gen_toks",
        "repeated_pattern": "whether generation ended by anything but a stop, 0 or 1",
        "text_loop": "whether the text ends in a repeated pattern, 0 or 1",
        "prompt_bpt": "bits per token of the prompt",
        "completion_bpt": "bits per token of the completion",
        "verifier_a": "a verifier's probability that the answer is correct",
        "verifier_b": "a verifier's probability that the answer is incorrect",
        "verifier_c": "a verifier's probability that the answer is invalid",
    }
)

_YES_OR_NO = frozenset({"is_correct", "has_box", "repeated_pattern", "text_loop"})
_PROBABILITIES = frozenset({"verifier_a", "verifier_b", "verifier_c"})
_AT_LEAST_ZERO = frozenset({"token_ratio", "prompt_bpt", "completion_bpt"})
#: Types that numpy converts to float by itself.
_PLAIN = frozenset({int, float, bool, type(None)})
#: Tolerance for rounding beyond the ends of a range.
_SLACK = 1e-6

#: The part of the package that records a signal, for error messages.
SOURCES = MappingProxyType(
    {
        "is_correct": "a task that grades answers as right or wrong",
        "has_box": "the text of a response",
        "token_ratio": "a recording model (--model trials, vllm-signals or hf-signals)",
        "repeated_pattern": "a recording model (--model trials, vllm-signals or hf-signals)",
        "text_loop": "the text of a response",
        "prompt_bpt": "a recording model with log-probabilities (--model trials with vllm or hf, "
        "vllm-signals, hf-signals)",
        "completion_bpt": "a recording model with log-probabilities (--model trials with vllm, hf "
        "or a server that gives them, vllm-signals, hf-signals)",
        "verifier_a": "lm-eval-bayes verify",
        "verifier_b": "lm-eval-bayes verify",
        "verifier_c": "lm-eval-bayes verify",
    }
)


def source_of(name: str) -> str:
    """Return the part of the package that records a signal.

    Examples
    --------
    >>> source_of("verifier_a")
    'lm-eval-bayes verify'
    """
    if name.startswith("rubric_"):
        return (
            "a task whose `rubric_own` names this rubric (its function runs with the task only, "
            "and must give a trial a category)"
        )
    return SOURCES.get(name, "a model that records it")


@dataclass(frozen=True, eq=False)
class SignalTable:
    """The signals of one run's trials on one task, one row per trial.

    Parameters
    ----------
    question : array, shape (T,), ints in 0..M−1
        The question that each trial answers.
    columns : mapping of str to array, shape (T,)
        The signals by name; NaN where a trial lacks one; infinite values count as missing.
    n_questions : int
        M.

    Raises
    ------
    InvalidInputError
        If a column has another length than `question`, a question is out of range, or one of
        :data:`SIGNALS` has a value that it cannot have.

    Examples
    --------
    >>> table = SignalTable.from_questions(
    ...     [{"is_correct": [1, 0], "prompt_bpt": [2.5, None]}, {"is_correct": [1]}]
    ... )
    >>> table.question, table.columns["prompt_bpt"]
    (array([0, 0, 1]), array([2.5, nan, nan]))
    >>> table.has("prompt_bpt"), table.has("completion_bpt")
    (True, False)
    """

    question: IntArray
    columns: Mapping[str, FloatArray]
    n_questions: int

    def __post_init__(self) -> None:
        question = np.array(self.question, dtype=np.int64)
        if question.ndim != 1 or np.any((question < 0) | (question >= self.n_questions)):
            rule = f"be one list of whole numbers in 0..{self.n_questions - 1}"
            raise InvalidInputError.of("question", rule, self.question)
        columns = {}
        for name, values in self.columns.items():
            column = np.array(values, dtype=np.float64)
            if column.shape != question.shape:
                rule = f"have one value per trial ({question.size})"
                raise InvalidInputError.of(f"columns[{name!r}]", rule, f"shape {column.shape}")
            column[np.isinf(column)] = np.nan  # no percentile could be taken
            _check_values(name, column)
            columns[name] = column
        for array in (question, *columns.values()):
            array.flags.writeable = False
        object.__setattr__(self, "question", question)
        object.__setattr__(self, "columns", MappingProxyType(columns))

    @classmethod
    def from_questions(
        cls, questions: Sequence[Mapping[str, Sequence[float | bool | None]]]
    ) -> SignalTable:
        """Join the columns of several questions; None and missing columns become NaN."""
        sizes = []
        for index, columns in enumerate(questions):
            lengths = {len(values) for values in columns.values()}
            if len(lengths) > 1:
                rule = "have columns of one length, the question's trials"
                raise InvalidInputError.of(f"questions[{index}]", rule, sorted(lengths))
            sizes.append(lengths.pop() if lengths else 0)
        names = dict.fromkeys(name for columns in questions for name in columns)
        joined = {
            name: np.concatenate(
                [
                    _numbers(columns[name]) if name in columns else np.full(size, np.nan)
                    for columns, size in zip(questions, sizes, strict=True)
                ]
                or [np.empty(0)]
            )
            for name in names
        }
        return cls(np.repeat(np.arange(len(sizes)), sizes), joined, len(sizes))

    @property
    def n_trials(self) -> int:
        """T, the number of trials."""
        return int(self.question.size)

    def has(self, name: str) -> bool:
        """Return whether any trial has this signal."""
        column = self.columns.get(name)
        return column is not None and bool(np.any(~np.isnan(column)))

    def column(self, name: str) -> FloatArray:
        """Return one signal, shape (T,); all NaN if it was never recorded."""
        column = self.columns.get(name)
        return np.full(self.n_trials, np.nan) if column is None else column


def _check_values(name: str, column: FloatArray) -> None:
    present = column[~np.isnan(column)]
    if name in _YES_OR_NO:
        rule, wrong = "be 0 or 1", present[(present != 0) & (present != 1)]
    elif name in _PROBABILITIES:
        rule, wrong = "be from 0 to 1", present[(present < -_SLACK) | (present > 1 + _SLACK)]
    elif name in _AT_LEAST_ZERO:
        rule, wrong = "be at least 0", present[present < -_SLACK]
    else:
        return
    if wrong.size:
        raise InvalidInputError.of(f"columns[{name!r}]", rule, float(wrong[0]))


def _numbers(values: Sequence[float | bool | None]) -> FloatArray:
    """Return floats; NaN for anything that is not a number."""
    if _PLAIN.issuperset(map(type, values)):
        with suppress(OverflowError):
            return np.array(values, dtype=np.float64)  # None is NaN
    return np.asarray([_number(v) for v in values], dtype=np.float64)


def _number(value: object) -> float:
    if not isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.nan
