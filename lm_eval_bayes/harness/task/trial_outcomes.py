"""Graded outcomes of trials, written to the trial store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lm_eval.utils import handle_non_serializable, hash_string

from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import stored_trial
from lm_eval_bayes.harness.models.trial_sink import StoreSink
from lm_eval_bayes.harness.task.pipelines import Responses
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: Category, answer and error of one response.
Grading = tuple[int, str | None, str | None]


def keep_outcomes(
    responses: Sequence[Any],
    graded: Sequence[Grading],
    *,
    task: str,
    version: str,
    categories: int,
    chosen: Sequence[int] | None,
) -> None:
    """Store the outcomes of one question's trials; a failure is logged and raises nothing.

    Parameters
    ----------
    responses : sequence
        The filtered responses. Without their raw ones, as when somebody grades a response by
        hand, or without a store, nothing is to be kept.
    graded : sequence
        Category, answer and error of each response.
    task, version : str
        The task.
    categories : int
        How many categories it has.
    chosen : sequence of int, optional
        The questions that `--samples` chose, which the harness numbers anew.
    """
    if not isinstance(responses, Responses) or len(responses.raw) != len(graded):
        return
    stored = [stored_trial(response) for response in responses.raw]
    sink = next((entry[0] for entry in stored if entry is not None), None)
    if sink is None:
        return
    try:
        instance = responses.instance
        doc_id = instance.doc_id if chosen is None else sorted(set(chosen))[instance.doc_id]
        question = GradedQuestion(doc_id, doc_hash(instance.doc), _trials(stored, graded))
    except Exception as error:
        # A document that JSON cannot hold, or the like: the rows do not need it.
        log.warning("%s: a question's outcomes cannot be stored: %s", task, error)
        return
    sink.add_outcomes(GradedTask(task, version, responses.pipeline, categories, (question,)))


def doc_hash(doc: Any) -> str:
    """Return the hash that the harness logs of a document."""
    text = json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False)
    return str(hash_string(text))


def _trials(
    stored: Sequence[tuple[StoreSink, Trial] | None], graded: Sequence[Grading]
) -> tuple[GradedTrial, ...]:
    trials: dict[tuple[Any, int], GradedTrial] = {}
    for entry, (outcome, answer, error) in zip(stored, graded, strict=True):
        if entry is not None:
            trial = entry[1]
            trials[trial.key, trial.trial] = GradedTrial(
                trial.key, trial.trial, outcome, answer, error
            )
    return tuple(trials.values())
