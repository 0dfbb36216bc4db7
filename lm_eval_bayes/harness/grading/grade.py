r"""Grade one response to a contest question: right or wrong, the answer found, what went wrong.

Most grades cost nothing: an AIME answer is an integer, and a formula written as
the gold is written equals it. Only the rest goes to math-verify, in a process
that is killed when it takes too long (`worker_pool`), and each pair of gold and
answer goes there once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import error_line
from lm_eval_bayes.errors import DatasetUnavailableError, InvalidInputError
from lm_eval_bayes.harness.grading.forms import cut, has_several_values, integer, unwrapped, values
from lm_eval_bayes.harness.grading.worker_pool import POOL, WorkerError, WorkerUnavailable
from lm_eval_bayes.rubric.answers import (
    boxed_answer,
    clean,
    final_part,
    plain_integer,
    squeeze,
    tidy,
)

#: Seconds that an extraction or a comparison of formulas may take.
TIMEOUT = 5.0
#: Characters at the end of an unboxed response in which an answer is looked for.
TAIL = 1500
#: An answer longer than this many characters plus ten times the gold is wrong unseen.
LONGEST = 1000
# A box that is not empty, in a text without a closed one.
_UNCLOSED_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{(?!\s*\})")
#: An answer with more values than this is none to a contest question.
MAX_PARTS = 40


@dataclass(frozen=True)
class Grade(Record):
    """One graded response.

    Attributes
    ----------
    correct : bool
    answer : str or None
        The answer as it was found in the response.
    error : str or None
        Why it could not be graded (an exception or a time-out of the grader),
        in one line; `correct` is then False.
    """

    correct: bool
    answer: str | None
    error: str | None = None


def _extract(text: str, several: bool) -> str | None:
    r"""Return the answer that a text gives.

    The last ``\boxed{…}`` (or ``\fbox{…}``, ``\boxed 5``) with balanced braces;
    unclosed and empty boxes do not count. Without any box: what math-verify's
    own patterns find in the last 1,500 characters, or those before an unclosed
    box ("the final answer is", else the last formula or number).
    """
    if (boxed := boxed_answer(text, several)) is not None:
        return boxed
    text = _UNCLOSED_BOX.split(text, maxsplit=1)[0]
    tail = "\n".join(clean(line) for line in text[-TAIL:].splitlines())
    if not any(c.isdigit() or c in "$\\" for c in tail):
        return None  # math-verify finds formulas and numbers only
    return POOL.run({"op": "extract", "texts": [tail]}, TIMEOUT) or None


@lru_cache(maxsize=20_000)
def _compare(gold: str, answer: str) -> tuple[bool, str | None]:
    """Return whether an answer equals the gold, and an error in one line."""
    try:
        return _equal(tidy(gold), tidy(answer)), None
    except WorkerError as error:
        return False, str(error)


def _equal(gold: str, answer: str) -> bool:
    """Compare as text and as integers, else value by value: each must have its match."""
    if squeeze(gold) == squeeze(answer):
        return True
    integers = plain_integer(gold), plain_integer(answer)
    if None not in integers:
        return integers[0] == integers[1]
    golds, answers = values(gold, gold), [*dict.fromkeys(values(answer, gold))]
    inner = unwrapped(answers[0]) if len(answers) == 1 else None
    if len(golds) > 1:
        answers = cut(inner[1]) if inner else answers  # a list in round brackets
        if not 1 < len(answers) <= max(MAX_PARTS, 2 * len(golds)):
            return False
        table = [[_equal(g, a) for a in answers] for g in golds]
        return all(map(any, table)) and all(map(any, zip(*table, strict=True)))
    pair = unwrapped(golds[0])
    if pair and (inner or len(answers) > 1):
        # a tuple or an interval; a tuple may come without its brackets
        items, parts = cut(pair[1]), cut(inner[1]) if inner else values(answer, gold)
        same_brackets = (inner or unwrapped(answer) or pair)[0] == pair[0]
        return same_brackets and len(items) == len(parts) and all(map(_equal, items, parts))
    if len(answers) > 1 or not answers[0]:
        return False
    if (gold, answer) != (golds[0], answers[0]):
        return _equal(golds[0], answers[0])
    return POOL.run({"op": "compare", "texts": [gold, answer]}, TIMEOUT) is True


def grade(
    response: str,
    gold: int | str,
    *,
    kind: Literal["math", "aime"] = "math",
    think_end_token: str | int | None = None,
) -> Grade:
    r"""Grade one response.

    Parameters
    ----------
    response : str
        The complete response.
    gold : int or str
        The right answer: for "aime" an integer in 0..999, "033" too; for "math"
        LaTeX, several answers separated by commas. Several boxes on the last line
        that has one are one answer if the gold has several values; else the last counts.
    kind : {"math", "aime"}
        "aime" compares integers (see `forms.integer` for what counts as
        one); "math" compares numbers by their relative distance (up to 1e-30, with
        a decimal 1e-10), other formulas by math-verify. Of several answers all must
        be present, in any order, and no other.
    think_end_token : str, int or None
        See `final_part`.

    Raises
    ------
    InvalidInputError
        For a response that is not text, an empty gold, or an AIME gold that is no integer in
        0..999.

    Examples
    --------
    >>> grade(r"so it is \boxed{033}", 33, kind="aime").correct
    True
    >>> grade(r"$x=\boxed{3}$ or $x=\boxed{2}$", "2,3").correct
    True
    >>> grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}")
    Grade(correct=True, answer='\\sqrt{8}', error=None)
    """
    if not isinstance(response, str):
        raise InvalidInputError.of("response", "type", "be text", response)
    if isinstance(gold, bool) or not str(gold).strip():
        raise InvalidInputError.of("gold", "format", "be an integer or LaTeX text", gold)
    right = integer(str(gold)) if kind == "aime" else None
    if kind == "aime" and (right is None or right.startswith("-") or len(right) > 3):
        raise InvalidInputError.of("gold", "range", "be an integer in 0..999", gold)
    text, answer = final_part(response, think_end_token), None
    try:
        answer = _extract(text, has_several_values(tidy(str(gold))))
        if answer is None or len(answer) > LONGEST + 10 * len(str(gold)):
            return Grade(False, answer)
        if kind == "aime":
            return Grade(integer(answer) == right, answer)
        correct, error = _compare(str(gold), answer)
        return Grade(correct, answer, error)
    except (WorkerError, WorkerUnavailable) as error:
        return Grade(False, answer, str(error))


def _process_results(
    doc: Mapping[str, Any], results: Sequence[Any], kind: Literal["math", "aime"]
) -> dict[str, Any]:
    if "answer" not in doc:
        sentence = f"the questions lack the field 'answer'; they have: {', '.join(map(str, doc))}"
        raise DatasetUnavailableError(sentence, "missing-key", "answer", list(doc))
    try:
        graded = grade(results[0], doc["answer"], kind=kind)
    except Exception as error:  # an error on one question must not end the others
        graded = Grade(False, None, f"{type(error).__name__}: {error_line(error)}")
    correct = int(graded.correct)
    return {"exact_match": correct, "answer": graded.answer, "grading_error": graded.error}


def process_results_aime(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
    """Grade one response to an AIME question, as a harness YAML's ``process_results``.

    Parameters
    ----------
    doc : mapping
        The question; its field ``answer`` is the gold.
    results : sequence
        ``results[0]`` is the response.

    Returns
    -------
    dict
        ``exact_match`` (0 or 1), ``answer`` (as extracted, or None) and
        ``grading_error`` (None, or why it counts as wrong ungraded).

    Raises
    ------
    DatasetUnavailableError
        If the question has no field ``answer``.

    Examples
    --------
    >>> process_results_aime({"answer": "033"}, [r"It is \\boxed{33}."])
    {'exact_match': 1, 'answer': '33', 'grading_error': None}
    """
    return _process_results(doc, results, "aime")


def process_results_math(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
    """Grade one response to a question with a LaTeX answer; else as `process_results_aime`.

    Raises
    ------
    DatasetUnavailableError
        If the question has no field ``answer``.

    Examples
    --------
    >>> process_results_math({"answer": "2,3"}, [r"\\boxed{3, 2}"])["exact_match"]
    1
    """
    return _process_results(doc, results, "math")


def regraded(
    texts: Sequence[str], target: str, think_end_token: str | None = None
) -> list[tuple[bool, str | None]]:
    r"""Grade the saved texts of one question, as :func:`grade` does.

    A run of a task that does not use this package may have sampled every question many times
    and graded it once; its texts and the right answers are in the logged samples.

    Parameters
    ----------
    texts : sequence of str
        The complete responses, one per trial.
    target : str
        The right answer as the harness logged it, see :func:`gold_answer`.
    think_end_token : str, optional
        The model's own marker of the end of its reasoning.

    Returns
    -------
    list of (bool, str or None)
        For every text whether it is right, and the answer that was found in it.

    Raises
    ------
    InvalidInputError
        If there is no answer in `target`.

    Examples
    --------
    >>> regraded([r"so \boxed{18}", "The answer is 17."], "9 * 2 = <<9*2=18>>18\n#### 18")
    [(True, '18'), (False, '17')]
    """
    right = gold_answer(target)
    grades = (grade(text, right, think_end_token=think_end_token) for text in texts)
    return [(graded.correct, graded.answer) for graded in grades]


def gold_answer(target: str) -> str:
    r"""Return the answer in a target.

    Of a worked solution that is what is in the boxes of the last line that has one, or what
    follows its last ``####``; otherwise it is the target itself.

    Raises
    ------
    InvalidInputError
        If nothing is left.

    Examples
    --------
    >>> targets = (r"We get $x = \boxed{\frac{1}{2}}$.", "5 + 5 = 10\n#### 10", " 033 ")
    >>> [gold_answer(target) for target in targets]
    ['\\frac{1}{2}', '10', '033']
    """
    answer = boxed_answer(target, several=True)
    if answer is None:
        answer = target.rpartition("####")[2].strip()  # as in GSM8K
    if not answer:
        raise InvalidInputError.of("target", "missing", "hold the right answer", target)
    return answer
