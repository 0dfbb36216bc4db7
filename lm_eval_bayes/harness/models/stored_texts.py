"""Responses whose texts stay in the trial store until something reads them.

A run holds a :class:`StoredText` in the place of each response, so that its memory does not grow
with the texts. Tasks of this package read them question by question; whatever else converts one
to a string reads it alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeAlias

from lm_eval_bayes.harness.evaluation import RepeatedInstance, current_evaluation
from lm_eval_bayes.harness.models.interface import Completion, signal_columns, signals_of
from lm_eval_bayes.harness.models.trial_sink import StoreSink
from lm_eval_bayes.store.errors import StoreError
from lm_eval_bayes.store.trial import Trial, TrialId, TrialKey, list_first

#: Filtered responses with more characters are logged as parts of the stored text, if they are.
LONG = 64

#: Trials whose texts are in memory at a time while they are looked through.
BATCH = 500


class TextPart(NamedTuple):
    """A part of a response, from one character up to another."""

    start: int
    end: int


#: Which part of the stored text a response is, its text if it is no part, None for all of it.
Part: TypeAlias = "TextPart | str | None"


def part_of(text: str, response: str) -> Part:
    """Return which part of another text a text is.

    Examples
    --------
    >>> part_of("is 2", "it is 2"), part_of("it is 2", "it is 2"), part_of("2.0", "it is 2")
    (TextPart(start=3, end=7), None, '2.0')
    """
    if text == response:
        return None
    start = response.rfind(text)
    return TextPart(start, start + len(text)) if start >= 0 else str(text)


class QuestionTexts:
    """The texts of the trials of one question, which are read when they are needed.

    The texts that were read last stay in memory until those of another question are read. Of every
    trial it holds a byte, and 16 more where responses are parts of the stored texts.

    Parameters
    ----------
    sink : StoreSink
        The store.
    key : TrialKey
        The key of the trials.
    signals : mapping
        The signals of the prompt, which may be filled later.
    first : int
        The lowest number of a trial.
    """

    _latest: QuestionTexts | None = None

    def __init__(
        self, sink: StoreSink, key: TrialKey, signals: Mapping[str, Any], first: int = 0
    ) -> None:
        self._sink, self._key, self._signals = sink, key, signals
        self._first = first
        self._texts: dict[int, Trial] = {}
        self._here = bytearray()  # 1 for each trial that is here, by its number less the first
        # start and end of each trial's part, (-1, -1) for all of the text; empty while all are
        self._parts = array("q")
        self._others: dict[int, str] = {}  # responses that are no parts
        self._digest: int | None = None
        self._recorded: set[str] = set()
        self.identical = True
        self.n_empty = 0

    def add(self, trial: Trial, finished: Completion) -> None:
        """Take note of a trial that was just read or stored, and of the response that it gives."""
        digest = hash(finished)
        self._digest = digest if self._digest is None else self._digest
        self.identical = self.identical and digest == self._digest
        self.n_empty += not finished.strip()
        self._recorded |= _not_none(finished.signals)
        index = trial.trial - self._first
        self._here.extend(bytes(max(0, index + 1 - len(self._here))))
        self._here[index] = 1
        part = part_of(finished, trial.text)
        if isinstance(part, str):
            self._others[trial.trial] = part
        elif part is not None:
            self._parts.extend([-1] * (2 * len(self._here) - len(self._parts)))
            self._parts[2 * index : 2 * index + 2] = array("q", part)

    def __contains__(self, number: int) -> bool:
        """Return whether a trial is here."""
        index = number - self._first
        return 0 <= index < len(self._here) and bool(self._here[index])

    def part(self, number: int) -> Part:
        """Return which part of the text of a trial its response is."""
        index = 2 * (number - self._first)
        if number in self._others or index >= len(self._parts) or self._parts[index] < 0:
            return self._others.get(number)
        return TextPart(*self._parts[index : index + 2])

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
            sentence = (
                f"{self._sink.name}: {list_first(missing)} was stored and can no longer be read; "
                "run the same command again"
            )
            raise StoreError(sentence, "damaged", "store", missing[0])
        return trials

    def trial(self, number: int) -> Trial:
        """Return one trial, and keep those of its question for the next call."""
        if QuestionTexts._latest is not self or number not in self._texts:
            if QuestionTexts._latest is not None:
                QuestionTexts._latest._texts = {}
            numbers = [self._first + index for index, here in enumerate(self._here) if here]
            self._texts = self.read(numbers)
            QuestionTexts._latest = self
        return self._texts[number]

    def completion(self, trial: Trial) -> Completion:
        """Return the response of a trial."""
        part = self.part(trial.trial)
        text = part if isinstance(part, str) else trial.text
        if isinstance(part, TextPart):
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
    """

    __slots__ = ("number", "question")

    def __init__(self, question: QuestionTexts, number: int) -> None:
        self.question, self.number = question, number

    @property
    def completion(self) -> Completion:
        """The response with its trial."""
        return self.question.completion(self.question.trial(self.number))

    def __str__(self) -> str:
        return self.completion.encode("utf-8", "replace").decode("utf-8")

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


class StoredTexts(Sequence[StoredText]):
    """The responses to the trials of one question, which holds no object of any of them.

    Parameters
    ----------
    question : QuestionTexts
        The texts of the question.
    numbers : range
        The numbers of the trials.
    """

    def __init__(self, question: QuestionTexts, numbers: range) -> None:
        self.question, self.numbers = question, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        kind = StoredTexts if isinstance(index, slice) else StoredText
        return kind(self.question, self.numbers[index])

    def __iter__(self) -> Iterator[StoredText]:
        return (StoredText(self.question, number) for number in self.numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ([str(text) for text in self],)


class ResponsesInTurn(Sequence[Any]):
    """The responses to all requests of the harness, made one after another.

    Parameters
    ----------
    requests : sequence of Instance
        The requests; clones of one are its trials.
    responses : mapping of int to sequence
        The responses to each, by the `id` of the request.
    further : str, optional
        Stands for further ones; without it they begin anew, as the harness pads a rank that has
        fewer requests than the others with its last one.
    """

    def __init__(
        self,
        requests: Sequence[Any],
        responses: Mapping[int, Sequence[Any]],
        further: str | None = None,
    ) -> None:
        self._requests, self._responses, self._further = requests, responses, further

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Any]:
        iterators = {key: self._endless(of_key) for key, of_key in self._responses.items()}
        return (next(iterators[id(request)]) for request in self._requests)

    def _endless(self, responses: Sequence[Any]) -> Iterator[Any]:
        if self._further is None:
            return chain.from_iterable(repeat(responses))
        return chain(responses, repeat(self._further))


class StoredSignals:
    """The signals of the responses to a question, which are read when its sample is written.

    Parameters
    ----------
    responses : StoredTexts
        The responses.
    """

    def __init__(self, responses: Sequence[StoredText]) -> None:
        self.responses = responses

    def read(self) -> dict[str, list[Any]]:
        """Return the signals as columns."""
        columns = signal_columns([response.completion for response in self.responses])
        signals: dict[str, list[Any]] = columns.get("signals", {})
        return signals


#: Stands for a filtered response that is the response before the filter.
UNCHANGED = TextPart(0, -1)


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
    return [question.completion(trials[response.number]) for response in responses]


def stay_in_store(model: Any, instances: Iterable[Any]) -> bool:
    """Return whether the texts of a model's trials can stay in the store.

    They can where all requests are those of tasks that read them question by question, in a
    run of one process.

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
    if int(getattr(model, "world_size", 1) or 1) > 1:
        return False
    return all(
        isinstance(instance, RepeatedInstance)
        and getattr(evaluation.tasks.get(str(instance.task_name)), "reads_stored_texts", False)
        for instance in instances
    )


def are_stored(responses: Sequence[object]) -> bool:
    """Return whether the texts of responses are in a store."""
    if isinstance(responses, StoredTexts):
        return len(responses) > 0
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
    """Return a logged sample with the texts and signals of its responses."""
    changed: dict[str, Any] = {}
    if "resps" in sample:
        changed["resps"] = [_texts(responses) for responses in sample["resps"]]
    if "resps" in sample and "filtered_resps" in sample:
        pairs = zip(sample["filtered_resps"], changed["resps"], strict=True)
        changed["filtered_resps"] = [_filtered_texts(*pair) for pair in pairs]
    signals = sample.get("signals")
    if isinstance(signals, StoredSignals):
        changed["signals"] = signals.read()
    if isinstance(sample.get("lengths"), array):
        changed["lengths"] = sample["lengths"].tolist()
    return {**sample, **changed}


def _texts(value: Any) -> Any:
    if isinstance(value, StoredText):
        return str(value)
    return [_texts(part) for part in value] if isinstance(value, (list, StoredTexts)) else value


def _filtered_texts(filtered: Any, responses: Sequence[Any]) -> Any:
    if not isinstance(filtered, (list, StoredTexts)):
        return _texts(filtered)
    return [
        (responses[i] if value == UNCHANGED else responses[i][slice(*value)])
        if isinstance(value, TextPart)
        else _texts(value)
        for i, value in enumerate(filtered)
    ]
