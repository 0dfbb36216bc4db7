"""The N-fold requests of a task, their responses, and what is logged and stored of them."""

from __future__ import annotations

import copy
import json
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, cast

from lm_eval.utils import handle_non_serializable, hash_string

from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import current_evaluation
from lm_eval_bayes.harness.models.generation_settings import (
    checked_generation_kwargs,
    fit_generation,
    one_length_key,
)
from lm_eval_bayes.harness.models.interface import (
    Completion,
    prompt_text,
    signal_columns,
    signals_of,
    stored_trial,
)
from lm_eval_bayes.harness.models.stored_texts import (
    LONG,
    UNCHANGED,
    Part,
    StoredTexts,
    are_stored,
    part_of,
)
from lm_eval_bayes.harness.task.prompts import build_variants
from lm_eval_bayes.harness.task.protocol import protocol_of, with_chat_template
from lm_eval_bayes.harness.task.result_rows import GradedResponses
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.store.outcomes import Cluster, GradedQuestion, GradedTask, GradedTrial

log = get_logger(__name__)


class LoggedResult(dict[str, Any]):
    """What is logged of a question, and its rows, which are aggregated.

    The harness writes a result into samples_*.jsonl with ``dict.update``, which copies what is
    logged. It aggregates what ``items()`` shows, the rows, and logs ``keys()`` as the names of the
    metrics.

    Parameters
    ----------
    rows : mapping
        The value of each row.
    logged : mapping
        Further fields of the log.
    values : mapping
        The metrics' values of the trials, which are logged too.
    """

    def __init__(
        self, rows: Mapping[str, Any], logged: Mapping[str, Any], values: Mapping[str, Any]
    ) -> None:
        super().__init__({**values, **logged})
        self.rows, self._metrics = dict(rows), dict(values)

    def items(self) -> Any:
        """Return the rows."""
        return self.rows.items()

    def keys(self) -> Any:
        """Return the names of the metrics."""
        return self._metrics.keys()


def loggable_values(values: Sequence[Any], metrics: Iterable[str]) -> dict[str, list[Any]]:
    """Return what metrics gave the trials of a question, None where they gave nothing.

    Parameters
    ----------
    values : sequence of mapping or None
        What grading gave each trial, by metric.
    metrics : iterable of str
        The metrics of the task.

    Examples
    --------
    >>> loggable_values([{"f1": 0.5, "em": True}, None], ["em", "f1", "acc"])
    {'em': [True, None], 'f1': [0.5, None]}
    """
    given = [of_trial if isinstance(of_trial, Mapping) else {} for of_trial in values]
    return {
        name: [_plain(of_trial.get(name)) for of_trial in given]
        for name in metrics
        if any(name in of_trial for of_trial in given)
    }


def _plain(value: Any) -> Any:
    """Return a number of numpy or torch as one of Python; other values as they are."""
    return value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value


def loggable(response: Any) -> Any:
    """Return a response without lone surrogates, which a file cannot hold."""
    if not isinstance(response, str):
        return response
    text = response.encode("utf-8", "replace").decode("utf-8")
    if text == response:
        return response
    return response.with_text(text) if isinstance(response, Completion) else text


class Responses(list[Any]):
    """A question's filtered responses, with its request and the name of the filter."""

    def __init__(self, filtered: Iterable[Any], instance: Any, pipeline: str) -> None:
        super().__init__([filtered] if isinstance(filtered, str) else filtered)
        self.instance = instance
        self.pipeline = pipeline

    @property
    def raw(self) -> Sequence[Any]:
        """The responses before the filter."""
        return cast("Sequence[Any]", self.instance.resps)

    def set_filtered(self, filtered: Sequence[Any], texts: Sequence[str]) -> None:
        """Put filtered responses here for the log: short texts, and parts of those in the store.

        Parameters
        ----------
        filtered, texts : sequence
            The responses after and before the filter.
        """
        shared: dict[str, str] = {}  # most trials of a question have one of a few answers
        self[:] = [
            value if not isinstance(value, str) else _to_log(value, text, shared)
            for value, text in islice(zip_longest(filtered, texts), len(filtered))
        ]


def _to_log(value: str, text: str | None, shared: dict[str, str]) -> Part:
    if value == text:
        return UNCHANGED
    if text is not None and len(value) > LONG and (part := part_of(value, text)) is not None:
        return part
    return shared.setdefault(str(value), str(value))


def endings(responses: Iterable[Any]) -> dict[str, int]:
    """Return how many responses ended at the limit of tokens, and how many are empty."""
    n_cut_off = n_empty = 0
    for response in responses:
        n_cut_off += signals_of(response).get("finish_reason") == "length"
        n_empty += not str(response).strip()
    return {"n_cut_off": n_cut_off, "n_empty": n_empty}


def measured_columns(texts: Sequence[Any], responses: Sequence[Any]) -> dict[str, Any]:
    """Return the lengths of the responses to a question and their signals, for the log.

    Parameters
    ----------
    texts : sequence of str
        The responses before the filter.
    responses : sequence
        The same as the run holds them: signals of those in a store are None, and read when they
        are written.
    """
    lengths = [len(str(text)) for text in texts]
    if are_stored(responses):
        return {"lengths": array("q", lengths), "signals": None}
    return {"lengths": lengths, **signal_columns(texts)}


def build_requests(
    build: Callable[..., None],
    task: Any,
    settings: Settings,
    original_kwargs: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> None:
    """Let the harness build a task's requests, N-fold or in variants, and note how they ask.

    The harness's cache of requests (`--cache_requests`) is not used: its key holds neither the
    prompt nor the settings of the chat template.

    Parameters
    ----------
    build : callable
        The harness's `build_all_requests`.
    task : ConfigurableTask
        The task.
    settings : Settings
        How many trials each question gets, and how it is asked.
    original_kwargs : mapping
        The generation settings of the task's YAML, before `--gen_kwargs`.
    arguments : mapping
        Those of `build_all_requests`.
    """
    evaluation = current_evaluation()
    model = evaluation.model if evaluation is not None else None
    task.first_trial = getattr(model, "first_trial", 0)
    arguments = with_chat_template(settings, {**arguments, "cache_requests": False})
    task._instances = build_variants(build, task, settings, arguments, task.first_trial)
    name, n = task.config.task, settings.n
    kwargs = one_length_key(task.config.generation_kwargs or {}, original_kwargs)
    kwargs = checked_generation_kwargs(kwargs, n, name)
    prompts = [prompt_text(instance.args[0]) for instance in task._instances]
    kwargs = fit_generation(kwargs, prompts, task.config.metadata or {}, name, model)
    task.config.generation_kwargs = kwargs
    for instance in task._instances:
        instance.arguments = (instance.args[0], copy.deepcopy(kwargs), *instance.args[2:])
    if n > 1 and evaluation is None:
        log.warning(
            "%s: the task does not know its model, so all trials on an API backend may carry one "
            "seed; import lm_eval_bayes.tasks before `from lm_eval.evaluator import evaluate`",
            name,
        )
    elif n > 1 and evaluation is not None and evaluation.response_cache:
        log.warning(
            "--use_cache stores sampled answers but never reads them back: a run that is stopped "
            "starts again from the first trial. The cache file only grows; leave the flag out."
        )
    task.protocol = protocol_of(task, settings, arguments)


def receive_responses(instances: Sequence[Any], settings: Settings, task: str) -> None:
    """Prepare the responses for grading and for the log.

    Parameters
    ----------
    instances : sequence of Instance
        A task's requests, answered.
    settings : Settings
        How many trials each question has.
    task : str
        The task's name, for messages.
    """
    for instance in instances:
        # several ranks pad the shortest one with its last question, which then has too many; a
        # lone surrogate, which the JSON of an API may carry, would cost the whole log of samples
        n = settings.trials_of(instance.doc_id)
        instance.resps = list(map(loggable, instance.resps[:n]))
    are_identical = all(len(set(map(str, instance.resps))) == 1 for instance in instances)
    responses = [response for instance in instances for response in instance.resps]
    n_empty = sum(not str(response).strip() for response in responses)
    _warn_of(are_identical, n_empty, len(responses), settings.n, task)


def receive_stored(
    instances: Sequence[Any], settings: Settings, task: str, pipelines: Sequence[str]
) -> bool:
    """Prepare responses whose texts are in a store; return False if texts are here.

    They are not filtered: each question's are when it is graded.
    """
    counts = [settings.trials_of(instance.doc_id) for instance in instances]
    answered = [i.resps[:count] for i, count in zip(instances, counts, strict=True)]
    if not all(map(are_stored, answered)):
        return False
    for instance, responses in zip(instances, answered, strict=True):
        first = responses[0]
        numbers = range(first.number, first.number + len(responses))
        instance.resps = StoredTexts(first.question, numbers)
        for name in pipelines:
            instance.filtered_resps[name] = Responses((), instance, name)
    questions = [responses[0].question for responses in answered]
    are_identical = all(question.identical for question in questions)
    n_empty = sum(question.n_empty for question in questions)
    _warn_of(are_identical, n_empty, sum(map(len, answered)), settings.n, task)
    return True


def _warn_of(are_identical: bool, n_empty: int, n_responses: int, n: int, task: str) -> None:
    """Warn of empty responses, and of N identical ones to every question: N is 1 then in truth."""
    if are_identical and n > 1 and n_responses:
        log.warning(
            "%s: all %d answers to every question are identical, so these are not %d trials and "
            "the intervals are far too narrow. Likely causes: the backend ignores temperature, "
            "one seed is used for every request, top_k=1, or the server caches answers.",
            *(task, n, n),
        )
    if n_empty:
        log.warning("%s: %d of %d responses are empty", task, n_empty, n_responses)


# -- after the filters ---------------------------------------------------------------------------


def store_outcomes(task: Any, responses: Sequence[Any], graded: GradedResponses) -> None:
    """Store the categories of one question's trials; a failure is logged and raises nothing.

    Parameters
    ----------
    task : RepeatedSamplingTask
        The task.
    responses : sequence
        The filtered responses. Without their raw ones, as when somebody grades a response by
        hand, or without a store, nothing is stored.
    graded : GradedResponses
        Their grades. Scores are not stored.
    """
    if graded.problem is not None or graded.are_scores:
        return
    if not isinstance(responses, Responses) or len(responses.raw) != len(graded.outcomes):
        return
    stored = [stored_trial(response) for response in responses.raw]
    sink = next((entry[0] for entry in stored if entry is not None), None)
    if sink is None:
        return
    trials = {}
    columns = zip(stored, graded.outcomes, graded.answers, graded.errors, strict=True)
    for entry, outcome, answer, error in columns:
        if entry is not None:
            key, number = entry[1].key, entry[1].trial
            trials[key, number] = GradedTrial(key, number, int(outcome), answer, error)
    instance, cluster = responses.instance, None
    doc_id, name = task.question_number(instance.doc_id), str(task.config.task)
    if graded.settings.cluster is not None and graded.cluster is not None:
        cluster = Cluster(graded.settings.cluster, graded.cluster)
    try:
        digest = doc_hash(instance.doc)
    except (TypeError, ValueError) as error:  # JSON cannot hold the document; no row needs it
        log.warning("%s: a question's outcomes cannot be stored: %s", name, error)
        return
    question = GradedQuestion(doc_id, digest, tuple(trials.values()), cluster)
    of_task = (name, str(task.VERSION), responses.pipeline, len(graded.settings.weights))
    sink.add_outcomes(GradedTask(*of_task, (question,)))


def doc_hash(doc: Any) -> str:
    """Return the hash that the harness logs of a document."""
    text = json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False)
    return str(hash_string(text))
