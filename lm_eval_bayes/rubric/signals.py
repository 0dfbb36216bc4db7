"""The signals of trials: computed from texts, grades and measurements, and held as columns.

A signal is a number per trial, NaN where it is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.answers import boxed_answer, final_part
from lm_eval_bayes.stats import FloatArray, IntArray

_GRADED = "a task that grades answers as right or wrong"
_TEXT = "the text of a response"
_RECORDED = "a recording model (--model trials, vllm-signals or hf-signals)"
_BITS = "a recording model with log-probabilities (--model trials, vllm-signals or hf-signals)"
_VERIFIER = "lm-eval-bayes study verify"
#: The signals of the twelve schemata: where each comes from, its least and its greatest value.
#: Those from 0 to 1 whose source is no verifier are 0 or 1.
SIGNALS: Mapping[str, tuple[str, float, float]] = MappingProxyType(
    {
        "is_correct": (_GRADED, 0, 1),  # whether the answer is right
        "has_box": (_TEXT, 0, 1),  # whether it holds a closed, non-empty \boxed{}
        "token_ratio": (_RECORDED, 0, np.inf),  # tokens of the completion over max_gen_toks
        "repeated_pattern": (_RECORDED, 0, 1),  # whether anything but a stop ended it
        "text_loop": (_TEXT, 0, 1),  # whether it ends in a repeated pattern
        "prompt_bpt": (_BITS, 0, np.inf),  # bits per token of the prompt
        "completion_bpt": (_BITS, 0, np.inf),  # bits per token of the completion
        "verifier_a": (_VERIFIER, 0, 1),  # a verifier's probability of a correct answer,
        "verifier_b": (_VERIFIER, 0, 1),  # of an incorrect one,
        "verifier_c": (_VERIFIER, 0, 1),  # and of an invalid one
    }
)
#: Tolerance for rounding beyond the ends of a range.
_SLACK = 1e-6


def source_of(name: str) -> str:
    """Return the part of the package that records a signal.

    Examples
    --------
    >>> source_of("verifier_a")
    'lm-eval-bayes study verify'
    """
    if name.startswith("rubric_"):
        return (
            "a task whose `rubric_own` names this rubric (its function runs with the task only, "
            "and must give a trial a category)"
        )
    return SIGNALS[name][0] if name in SIGNALS else "a model that records it"


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
            raise InvalidInputError.of("question", "shape", rule, self.question)
        columns = {}
        for name, values in self.columns.items():
            column = np.array(values, dtype=np.float64)
            if column.shape != question.shape:
                rule = f"have one value per trial ({question.size})"
                got = f"shape {column.shape}"
                raise InvalidInputError.of(f"columns[{name!r}]", "shape", rule, got)
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
                raise InvalidInputError.of(f"questions[{index}]", "shape", rule, sorted(lengths))
            sizes.append(lengths.pop() if lengths else 0)
        names = dict.fromkeys(name for columns in questions for name in columns)
        pairs = list(zip(questions, sizes, strict=True))
        joined = {
            name: np.concatenate([numbers(c.get(name, [None] * size)) for c, size in pairs])
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
    if name not in SIGNALS:
        return
    source, low, high = SIGNALS[name]
    if high == 1 and source != _VERIFIER:
        rule, wrong = "be 0 or 1", ~np.isin(column, (0.0, 1.0)) & ~np.isnan(column)
    else:
        rule = f"be from {low:g} to {high:g}"
        wrong = (column < low - _SLACK) | (column > high + _SLACK)
    if wrong.any():
        raise InvalidInputError.of(f"columns[{name!r}]", "range", rule, float(column[wrong][0]))


def numbers(values: Sequence[float | bool | None]) -> FloatArray:
    """Return floats; NaN for anything that is not a number."""
    return np.asarray([_number(v) for v in values], dtype=np.float64)


def _number(value: object) -> float:
    if not isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.nan


#: The paper's limit of a completion, in tokens, for runs that do not record theirs.
MAX_GEN_TOKS = 32_768

#: Names of a completion's limit, in the order in which the harness looks for them.
_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

#: Recorded numbers that a custom rubric may name besides the signals of the schemata.
RECORDED = ("completion_tokens", "prompt_tokens", "think_closed", "prompt_truncated")

#: The longest repeated pattern that is looked for, in characters.
_LONGEST_PATTERN = 1500
#: The least number of copies at the end, and the least characters of all copies.
_LEAST_COPIES = 4
_LEAST_CHARACTERS = 120


def trial_signals(
    texts: Sequence[str],
    outcomes: Sequence[int],
    recorded: Mapping[str, Sequence[Any]],
    *,
    binary: bool = True,
    max_gen_toks: int | None = None,
    think_end_token: str | int | None = None,
) -> dict[str, list[float | None]]:
    """Compute the signals of one question's trials.

    Parameters
    ----------
    texts : sequence of str
        The whole responses.
    outcomes : sequence of int
        Their grades.
    recorded : mapping of str to sequence
        What a recording model logged: by name, one value per trial; empty for other models.
    binary : bool
        Whether the grade says right or wrong.
    max_gen_toks : int, optional
        The run's limit of a completion (default 32,768).
    think_end_token : str, int or None
        The marker after which a box counts, besides ``</think>``.

    Returns
    -------
    dict
        One column per signal with one value per trial; None where a trial lacks it. A signal
        that no trial has is absent.

    Raises
    ------
    InvalidInputError
        If texts, outcomes and recorded columns differ in length.

    Examples
    --------
    >>> signals = trial_signals(
    ...     ["It is \\\\boxed{4}.", "Hm, 4?"], [1, 1],
    ...     {"completion_tokens": [8, 64], "finish_reason": ["stop", "length"]}, max_gen_toks=64,
    ... )
    >>> signals["has_box"], signals["token_ratio"], signals["repeated_pattern"]
    ([1.0, 0.0], [0.125, 1.0], [0.0, 1.0])
    """
    for name, values in {"outcomes": outcomes, **recorded}.items():
        if len(values) != len(texts):
            rule = f"have one value per text ({len(texts)})"
            raise InvalidInputError.of(name, "shape", rule, len(values))
    boxed = [boxed_answer(final_part(text, think_end_token)) for text in texts]
    signals: dict[str, list[float | None]] = {
        "outcome": [float(outcome) for outcome in outcomes],
        "has_box": [float(box is not None) for box in boxed],
        "text_loop": [float(text_loop(text)) for text in texts],
    }
    if binary:
        signals["is_correct"] = list(signals["outcome"])
    for name in (*RECORDED, "prompt_bpt", "completion_bpt"):
        if name in recorded:
            numbers = map(_number, recorded[name])
            signals[name] = [None if math.isnan(number) else number for number in numbers]
    limit = max_gen_toks or MAX_GEN_TOKS
    tokens = signals.get("completion_tokens")
    if tokens is not None:
        signals["token_ratio"] = [None if n is None else n / limit for n in tokens]
    if "finish_reason" in recorded:
        signals["repeated_pattern"] = [
            None if reason is None else float(reason != "stop")
            for reason in recorded["finish_reason"]
        ]
    return {name: values for name, values in signals.items() if any(v is not None for v in values)}


def text_loop(text: str) -> bool:
    """Return whether a text ends in one pattern, repeated.

    The last characters are a loop if they consist of at least four copies of one pattern of up
    to 1,500 characters, the last of them perhaps cut off, and are at least 120 characters long.
    It takes time linear in the last 6,000 characters.

    Parameters
    ----------
    text : str
        The whole response.

    Returns
    -------
    bool

    Examples
    --------
    >>> text_loop("So x = 3. " + "Wait, let me check again. " * 20 + "Wait, le")
    True
    >>> text_loop("So x = 3. Wait, let me check again. The answer is 3.")
    False
    """
    # Reversed, a loop is a prefix that occurs again one period later. Whatever the period, at least
    # three quarters of the least length do, so that only these places have to be compared.
    end = text.rstrip()[::-1][: _LONGEST_PATTERN * _LEAST_COPIES]
    prefix = end[: _LEAST_CHARACTERS * (_LEAST_COPIES - 1) // _LEAST_COPIES]
    period = end.find(prefix, 1)
    while 0 < period <= _LONGEST_PATTERN:
        length = max(_LEAST_COPIES * period, _LEAST_CHARACTERS) - period
        if period + length <= len(end) and end.startswith(end[:length], period):
            return True
        period = end.find(prefix, period + 1)
    return False


def completion_limit(generation_kwargs: object) -> int | None:
    """Return the limit of a completion in tokens, by the first of its names that is set.

    Examples
    --------
    >>> completion_limit({"max_tokens": 512, "temperature": 0.6})
    512
    """
    if not isinstance(generation_kwargs, Mapping):
        return None
    limits = (generation_kwargs.get(name) for name in _LIMITS)
    limit = next((limit for limit in limits if limit is not None), None)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit <= 0:
        return None
    return limit
