"""Where the answer of a response comes from, which maj@k counts and which warnings name.

A vote needs the final answer of every response: two solutions in different words that end in the
same answer are one candidate. It is extracted by the task's filter or by its grader
(``answer`` in what `process_results` returns). Where `exact_match` compares all of a response
with the right answer, that is the answer. Elsewhere there is none, and no row of maj@k.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Literal, TypeAlias

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.models.interface import signals_of
from lm_eval_bayes.harness.task.pipelines import probe_output
from lm_eval_bayes.rubric.answers import THINK_END, final_part

#: What gives the answer: the task's grader, the filter, the response itself, or nothing.
AnswerSource: TypeAlias = Literal["grader", "filter", "response", "none"]

#: What the harness's filters return for a response in which they find nothing.
NO_MATCH = "[invalid]"

#: The options of the harness's `exact_match`.
EXACT_MATCH_OPTIONS = (
    "ignore_case",
    "ignore_punctuation",
    "ignore_numbers",
    "regexes_to_ignore",
)

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WITHOUT_DIGITS = str.maketrans("", "", string.digits)


def answer_part(response: Any, think_end_token: object) -> Any:
    """Return the part of a response that may hold an answer.

    With a marker that is what follows the thinking. There is none in a response that ended at the
    limit of tokens before its thinking was closed, as far as the model or the marker tells it.

    Examples
    --------
    >>> from lm_eval_bayes.harness.models.interface import Completion
    >>> cut_off = Completion("so 4, no", {"finish_reason": "length", "think_closed": False})
    >>> answer_part(cut_off, None), answer_part("4, or 5?</think> 5", "</think>")
    ('', ' 5')
    """
    if not isinstance(response, str):
        return response
    marker = think_end_token if isinstance(think_end_token, str) else None
    signals = signals_of(response)
    is_closed = signals.get("think_closed")
    if is_closed is None and marker is not None:
        is_closed = marker in response or THINK_END in response
    if is_closed is False and signals.get("finish_reason") == "length":
        return ""
    return response if marker is None else final_part(response, marker)


def answer_source(
    pipeline: Any, doc: Any, *, runs_code: bool, matches_exactly: bool
) -> AnswerSource:
    """Return where the answers of a pipeline's responses come from, if not from the grader.

    The filter extracts none where a test response of several words comes back in full, up to case,
    white space and what was added to it; programs that a filter completes are an example.

    Parameters
    ----------
    pipeline : FilterEnsemble
        The harness's object.
    doc : dict
        A question.
    runs_code : bool
        Whether the responses are programs, which are no answers.
    matches_exactly : bool
        Whether `exact_match` of the harness compares what the filter leaves.
    """
    if runs_code:
        return "none"
    text = r"We add both. The answer is (B). Hence the final answer is $\boxed{2}$, at last."
    try:
        filtered = probe_output(pipeline, 1, doc, [text], "")
    except TaskConfigError:
        return "filter"  # it needs another form of response, so it reads more than white space
    first = filtered if isinstance(filtered, str) else next(iter(filtered), "")
    if "".join(text.lower().split()) not in "".join(str(first).lower().split()):
        return "filter"
    return "response" if matches_exactly else "none"


def answer_of(
    response: object, no_match: Set[str], exact_match_options: Mapping[str, Any] | None
) -> str | None:
    """Return the answer of a filtered response, None where it has none.

    Parameters
    ----------
    response : object
        What a filter pipeline made of the response.
    no_match : set of str
        What the pipeline returns where it finds nothing, see :func:`fallbacks`.
    exact_match_options : mapping or None
        The options of `exact_match`, where it compares the response; else None.

    Examples
    --------
    >>> answer_of("1,080", {NO_MATCH}, {"regexes_to_ignore": [","]})
    '1080'
    >>> answer_of("[invalid]", {NO_MATCH}, None) is None
    True
    """
    if response is None or str(response) in no_match:
        return None
    text = str(response)
    if exact_match_options is not None:
        text = compared_text(text, exact_match_options)
    return text if text.strip() else None


def fallbacks(filter_list: Iterable[Mapping[str, Any]] | None, name: str) -> frozenset[str]:
    """Return what a pipeline returns for a response in which it finds nothing."""
    steps = [
        step
        for pipeline in filter_list or ()
        if pipeline["name"] == name
        for step in pipeline["filter"]
    ]
    return frozenset({NO_MATCH, *(str(step["fallback"]) for step in steps if "fallback" in step)})


def compared_text(text: str, options: Mapping[str, Any]) -> str:
    """Return a text as the harness's `exact_match` compares it.

    Parameters
    ----------
    text : str
        A filtered response.
    options : mapping
        The metric's options, see :data:`EXACT_MATCH_OPTIONS`; others are ignored.

    Examples
    --------
    >>> compared_text("$1,080.", {"regexes_to_ignore": [",", r"\\$", r"\\.$"]})
    '1080'
    """
    for pattern in options.get("regexes_to_ignore") or ():
        text = re.sub(pattern, "", text)
    if options.get("ignore_case"):
        text = text.lower()
    if options.get("ignore_punctuation"):
        text = text.translate(_WITHOUT_PUNCTUATION)
    if options.get("ignore_numbers"):
        text = text.translate(_WITHOUT_DIGITS)
    return text


def zero_score(
    outcomes: Sequence[Sequence[int]],
    answers: Sequence[Sequence[str | None]],
    source: AnswerSource,
    origin: str,
) -> str | None:
    """Return a warning where every trial is graded 0 or no response has an answer.

    Parameters
    ----------
    outcomes : sequence of sequence of int
        The categories of all questions' trials.
    answers : sequence of sequence of str or None
        Their answers.
    source : AnswerSource
        Where the answers come from.
    origin : str
        The task and its filter, for the message.

    Examples
    --------
    >>> zero_score([[0, 0]], [["7", None]], "filter", "task t, filter f")
    "task t, filter f: all 2 trials are graded 0; the filter reads answers such as '7'"
    """
    given = [answer for row in answers for answer in row if answer is not None]
    all_zero = not any(outcome for row in outcomes for outcome in row)
    n = sum(map(len, outcomes))
    if not n or (not all_zero and (given or source == "none")):
        return None
    graded = f"all {n} trials are graded 0; " if all_zero else ""
    example = repr(one_line(given[0])[:60]) if given else ""
    read = f"reads answers such as {example}" if given else "finds no answer in any response"
    cause = {
        "grader": f"the grader {read}",
        "filter": f"the filter {read}",
        "response": "no filter extracts the answer, and exact_match compares all of a response"
        + (f", such as {example}, with the right answer" if given else "; all are empty"),
        "none": "no filter extracts the answer; does the grader expect another form of it?",
    }[source]
    return f"{origin}: {graded}{cause}"
