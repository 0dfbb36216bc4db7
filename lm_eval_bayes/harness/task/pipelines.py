"""Filter pipelines that keep all N responses of a question, and the answers that they leave.

Importing this module registers the filter, unless the name is taken.

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

import lm_eval.filters  # noqa: F401  first: the harness fills a registry only while it is empty
from lm_eval.api.filter import Filter
from lm_eval.api.registry import filter_registry
from lm_eval.filters import build_filter_ensemble

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import new_instance
from lm_eval_bayes.harness.models.interface import signals_of
from lm_eval_bayes.rubric.answers import THINK_END, final_part

log = get_logger(__name__)

KEEP_ALL = "keep_all"

_TAKES_SOME = ("take_first", "take_first_k")
_TAKES_ONE_VOTE = "majority_vote"

HOW_TO_SKIP = "if it is correct, skip this test with bayes_check: false"


class KeepAllFilter(Filter):
    """Keep all N responses of every question, unchanged.

    The harness's default filter is `take_first`, which throws N - 1 of them away.
    """

    def apply(self, resps: Iterable[Any], docs: Iterable[dict[str, Any]]) -> list[list[Any]]:
        """Return each question's responses as a list."""
        return [list(r) for r in resps]


if KEEP_ALL not in filter_registry:
    filter_registry.register(KEEP_ALL)(KeepAllFilter)


def keep_all_responses(filter_list: Any, task: str) -> list[dict[str, Any]]:
    """Rewrite a YAML's `filter_list` so that no step throws responses away.

    `take_first` and `take_first_k` steps are dropped; a pipeline that becomes empty keeps
    all. A pipeline with a `majority_vote` has one response where N are needed: it is left
    out with a notice, since the rows hold maj@k.

    Raises
    ------
    TaskConfigError
        If every pipeline votes.
    """
    rewritten: list[dict[str, Any]] = []
    if filter_list is not None and not _well_formed(filter_list):
        sentence = (
            f"task {task}: `filter_list` must be a list of pipelines, each with a `name` and a "
            f"`filter` that lists steps with a `function`; got {filter_list!r:.120}"
        )
        raise TaskConfigError(sentence, "format", "filter_list", filter_list)
    for pipeline in filter_list or [{"name": "none", "filter": []}]:
        steps = [s for s in pipeline["filter"] if s["function"] not in _TAKES_SOME]
        if any(step["function"] == _TAKES_ONE_VOTE for step in steps):
            log.warning(
                "%s: filter pipeline `%s` votes over the responses and leaves one of N; "
                "it is left out; the row maj@k has the vote",
                task,
                pipeline["name"],
            )
            continue
        rewritten.append({**pipeline, "filter": steps or [{"function": KEEP_ALL}]})
    if not rewritten:
        sentence = (
            f"task {task}: every pipeline in `filter_list` ends in majority_vote, which leaves one "
            "of N responses; add one that keeps them all"
        )
        raise TaskConfigError(sentence, "unsupported", "filter_list", "majority_vote")
    return rewritten


def built(filter_list: Iterable[dict[str, Any]]) -> list[Any]:
    """Return the harness's pipelines of a `filter_list`."""
    return [
        build_filter_ensemble(
            pipeline["name"],
            [
                (step["function"], {key: step[key] for key in step if key != "function"})
                for step in pipeline["filter"]
            ],
        )
        for pipeline in filter_list
    ]


def _well_formed(filter_list: Any) -> bool:
    return isinstance(filter_list, list) and all(
        isinstance(pipeline, dict)
        and isinstance(pipeline.get("name"), str)
        and isinstance(pipeline.get("filter"), list)
        and all(isinstance(step, dict) and "function" in step for step in pipeline["filter"])
        for pipeline in filter_list
    )


def probe_output(pipeline: Any, n: int, doc: Any, texts: Sequence[str], task: str) -> Any:
    """Return the output of a pipeline for N copies of a test response to one question.

    Parameters
    ----------
    pipeline : FilterEnsemble
        The harness's object.
    n : int
        How many responses go in.
    doc : dict
        The question.
    texts : sequence of str
        Test responses; the first one that the pipeline accepts is used.
    task : str
        The task's name, for the message.

    Returns
    -------
    object
        The pipeline's output.

    Raises
    ------
    TaskConfigError
        If the pipeline fails on every text.
    """
    for text in texts:
        probe = new_instance(doc, task=task, repeats=n, resps=[text] * n)
        try:
            pipeline.apply([probe])
            out = probe.filtered_resps[pipeline.name]
            return out if isinstance(out, (str, list, tuple)) else list(out)
        except Exception as error:
            problem = error
    sentence = (
        f"task {task}: filter pipeline `{pipeline.name}` fails on the first question's own answer "
        f"({type(problem).__name__}: {problem}); {HOW_TO_SKIP}"
    )
    raise TaskConfigError(sentence, "failed", "filter_list", pipeline.name) from problem


def check_keeps_all(pipeline: Any, out: Any, n: int, task: str) -> None:
    """Check that a pipeline's output has N responses.

    Raises
    ------
    TaskConfigError
        If it has another number.
    """
    count = 1 if isinstance(out, str) else len(out)
    if count != n:
        sentence = (
            f"task {task}: filter pipeline `{pipeline.name}` must keep all N={n} responses of a "
            f"question; it leaves {count} (end it with `- function: keep_all` and drop the steps "
            "that choose or vote)"
        )
        raise TaskConfigError(sentence, "mismatch", "filter_list", count)


def apply(pipeline: Any, instances: Sequence[Any], task: str) -> None:
    """Apply a pipeline to each question by itself.

    A question whose responses a filter cannot digest gets None for each of them, which
    its grader then counts as an error; the other questions lose nothing.
    """
    for instance in instances:
        try:
            pipeline.apply([instance])
        except Exception as error:
            log.warning(
                "%s: filter pipeline `%s` failed on question %s (%s: %s)",
                *(task, pipeline.name, instance.doc_id, type(error).__name__, error),
            )
            instance.filtered_resps[pipeline.name] = [None] * len(instance.resps)


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
