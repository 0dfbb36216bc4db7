"""Requests for single trials, as a recording model makes them."""

from __future__ import annotations

from lm_eval_bayes.harness.evaluation import new_instance
from lm_eval_bayes.harness.models.interface import RequestStream, TrialRequest
from lm_eval_bayes.store.trial import TrialKey

KEY = TrialKey(*(f"blake2b-128:{digit * 32}" for digit in "123"))


def trial_request(index, context, prompt, trial, seed, kwargs, instance=None):
    return TrialRequest(index, context, instance, prompt, trial, seed, kwargs, KEY)


def stream_of(requests):
    """Return requests as a stream, with the first one of each prompt as its question."""
    questions = {request.prompt: request for request in reversed(requests)}
    return RequestStream(list(questions.values())[::-1], len(requests), iter(requests))


def instances_of(prompts, trials, kwargs, task="demo"):
    """Return what the harness sends: the very same instance of a prompt once for each trial."""
    instances = []
    for doc_id, prompt in enumerate(prompts):
        instance = new_instance({}, (prompt, kwargs), task=task, doc_id=doc_id, repeats=trials)
        instances += [instance] * trials
    return instances


def sums(trials, questions):
    """Return instances of sums, with their answers in the documents."""
    instances = instances_of(
        [f"What is {number} + 5?" for number in range(questions)], trials, {"temperature": 1.0}
    )
    for instance in instances:
        instance.doc.update(answer=str(instance.doc_id + 5))
    return instances
