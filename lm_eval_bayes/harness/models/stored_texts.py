"""Responses whose texts stay in the trial store until something reads them.

A run holds a :class:`StoredText` in the place of each response, so that its memory does not grow
with the texts. Tasks of this package read them question by question; whatever else converts one
to a string reads it alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from lm_eval_bayes.harness.evaluation import RepeatedInstance, current_evaluation
from lm_eval_bayes.harness.models.interface import Completion, signals_of
from lm_eval_bayes.harness.models.trial_sink import StoreSink
from lm_eval_bayes.store.errors import StoreError
from lm_eval_bayes.store.trial import Trial, TrialId, TrialKey, list_first

#: Which part of the stored text a response is: from where to where, or its text if it is no part.
Part: TypeAlias = "tuple[int, int] | str"

#: Trials whose texts are in memory at a time while they are looked through.
BATCH = 500


class QuestionTexts:
    """The texts of the trials of one question, which are read when they are needed.

    The texts that were read last stay in memory until those of another question are read.

    Parameters
    ----------
    sink : StoreSink
        The store.
    key : TrialKey
        The key of the trials.
    signals : mapping
        The signals of the prompt, which may be filled later.
    """

    _latest: QuestionTexts | None = None

    def __init__(self, sink: StoreSink, key: TrialKey, signals: Mapping[str, Any]) -> None:
        self._sink, self._key, self._signals = sink, key, signals
        self._texts: dict[int, Trial] = {}
        self._numbers: list[int] = []
        self._first: int | None = None
        self._recorded: set[str] = set()
        self.identical = True

    def stored(self, trial: Trial, finished: Completion) -> StoredText:
        """Return the response to a trial that was just read or stored, without its text."""
        digest = hash(finished)
        self._first = digest if self._first is None else self._first
        self.identical = self.identical and digest == self._first
        self._recorded |= _not_none(finished.signals)
        self._numbers.append(trial.trial)
        if finished == trial.text:
            return StoredText(self, trial.trial, None)
        start = trial.text.find(finished)
        part: Part = (start, start + len(finished)) if start >= 0 else str(finished)
        return StoredText(self, trial.trial, part)

    @property
    def recorded(self) -> set[str]:
        """The names of the signals that at least one of the trials has."""
        return self._recorded | _not_none(self._signals)

    def read(self, numbers: Collection[int]) -> dict[int, Trial]:
        """Read trials, each compared with its hash.

        Raises
        ------
        StoreError
            If a trial can no longer be read.
        """
        if not numbers:
            return {}
        trials = self._sink.trials_of({self._key: numbers})[self._key]
        missing = [TrialId(self._key, number) for number in numbers if number not in trials]
        if missing:
            raise StoreError(
                f"{self._sink.name}: {list_first(missing)} was stored and can no longer be read; "
                "run the same command again"
            )
        return trials

    def trial(self, number: int) -> Trial:
        """Return one trial, and keep those of its question for the next call."""
        if QuestionTexts._latest is not self or number not in self._texts:
            if QuestionTexts._latest is not None:
                QuestionTexts._latest._texts = {}
            self._texts = self.read(self._numbers)
            QuestionTexts._latest = self
        return self._texts[number]

    def completion(self, trial: Trial, part: Part | None) -> Completion:
        """Return the response of a trial."""
        text = part if isinstance(part, str) else trial.text
        if isinstance(part, tuple):
            text = text[slice(*part)]
        return Completion(text, self._signals, trial, self._sink)


class StoredText:
    """The response to a trial, whose text is read from the store by `str`.

    A lone surrogate, which a file cannot hold, is read as a question mark.

    Parameters
    ----------
    question : QuestionTexts
        The texts of its question.
    number : int
        The number of the trial.
    part : tuple, str or None
        The part of the stored text; None for all of it.
    """

    __slots__ = ("number", "part", "question")

    def __init__(self, question: QuestionTexts, number: int, part: Part | None) -> None:
        self.question, self.number, self.part = question, number, part

    def __str__(self) -> str:
        text = self.question.completion(self.question.trial(self.number), self.part)
        return text.encode("utf-8", "replace").decode("utf-8")

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


def _not_none(signals: Mapping[str, Any]) -> set[str]:
    return {name for name, value in signals.items() if value is not None}


def recorded_signals(responses: Iterable[object]) -> set[str]:
    """Return the names of the signals that at least one of the responses to a question has."""
    names: set[str] = set()
    for response in responses:
        if isinstance(response, StoredText):
            return response.question.recorded
        names |= _not_none(signals_of(response))
    return names


def completions(responses: Sequence[StoredText]) -> list[Completion]:
    """Read the responses to one question."""
    if not responses:
        return []
    question = responses[0].question
    trials = question.read([response.number for response in responses])
    return [question.completion(trials[r.number], r.part) for r in responses]


def stay_in_store(model: Any, instances: Iterable[Any]) -> bool:
    """Return whether the texts of a model's trials can stay in the store.

    They can where all requests are those of tasks that read them question by question, in one
    process that shares its trials with no other.

    Parameters
    ----------
    model : RecordingMixin
        The model.
    instances : iterable of Instance
        The harness's requests.
    """
    evaluation = current_evaluation()
    if evaluation is None or not isinstance(model.sink, StoreSink):
        return False
    if int(getattr(model, "world_size", 1) or 1) > 1 or model.sharing is not None:
        return False
    return all(
        isinstance(instance, RepeatedInstance)
        and getattr(evaluation.tasks.get(str(instance.task_name)), "reads_stored_texts", False)
        for instance in instances
    )


def are_stored(responses: Sequence[object]) -> bool:
    """Return whether the texts of responses are in a store."""
    return bool(responses) and all(isinstance(response, StoredText) for response in responses)


class StoredSample(dict[str, Any]):
    """A logged sample whose texts are read when its items are asked for, as `json.dumps` does.

    The encoder of JSON takes the elements of a list as they are stored in it, and asks a dict that
    is of another class for its items.
    """

    def items(self) -> Any:
        """Return names and values, with the texts of the responses."""
        return with_texts(self).items()


class StoredSamples(list[dict[str, Any]]):
    """The logged samples of a task; each is returned with its texts, which are read then.

    `json.dumps` holds the texts of one question beside its result, `json.dump` no others.

    Examples
    --------
    >>> samples = StoredSamples([{"doc_id": 0, "resps": [["a", "b"]]}])
    >>> samples[0]["resps"], [sample["doc_id"] for sample in samples]
    ([['a', 'b']], [0])
    """

    def __iter__(self) -> Any:
        return (with_texts(sample) for sample in super().__iter__())

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return StoredSamples(found) if isinstance(index, slice) else with_texts(found)


def read_later(samples: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the logged samples of tasks, those with texts in a store as :class:`StoredSamples`."""
    return {
        task: StoredSamples(map(StoredSample, of_task))
        if any(are_stored(sample["resps"][0]) for sample in of_task if sample.get("resps"))
        else of_task
        for task, of_task in samples.items()
    }


def with_texts(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a logged sample with the texts of its responses."""
    texts = {name: sample[name] for name in ("resps", "filtered_resps") if name in sample}
    return {**sample, **{name: _with_texts(value) for name, value in texts.items()}}


def _with_texts(value: Any) -> Any:
    if isinstance(value, StoredText):
        return str(value)
    return [_with_texts(part) for part in value] if isinstance(value, list) else value
