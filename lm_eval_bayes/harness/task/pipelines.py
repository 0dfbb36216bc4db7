"""Filter pipelines that keep all N responses of a question, and the filter `keep_all`.

Importing this module registers the filter, unless the name is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import lm_eval.filters  # noqa: F401  first: the harness fills a registry only while it is empty
from lm_eval.api.filter import Filter
from lm_eval.api.registry import filter_registry
from lm_eval.filters import build_filter_ensemble

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.instances import new_instance

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
