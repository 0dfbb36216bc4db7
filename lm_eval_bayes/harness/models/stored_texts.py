"""Responses whose texts stay in the trial store until something reads them.

A run holds a :class:`StoredText` in the place of each response, so that its memory does not grow
with the texts. Tasks of this package read them question by question; whatever else converts one
to a string reads it alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeAlias

from lm_eval_bayes.harness.models.interface import Completion, signal_columns, signals_of
from lm_eval_bayes.harness.models.trial_sink import StoreSink
from lm_eval_bayes.store.errors import StoreError
from lm_eval_bayes.store.trial import Trial, TrialId, TrialKey, list_first

#: Filtered responses with more characters are logged as parts of the stored text, if they are.
LONG = 64


class TextPart(NamedTuple):
    """A part of a response, from one character up to another, as of a slice."""

    start: int
    end: int | None


#: Which part of the stored text a response is, its text if it is no part, None for all of it.
Part: TypeAlias = "TextPart | str | None"

#: Stands for a filtered response that is the response before the filter.
UNCHANGED = TextPart(0, None)


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
    """The trials of one question that a run has, whose texts are read when they are needed.

    Parameters
    ----------
    sink : StoreSink
        The store.
    key : TrialKey
        The key of the trials.
    response : callable
        Returns the response of a trial.
    prompt_signals : mapping
        The signals of the prompt, which may be filled later.

    Attributes
    ----------
    numbers : set of int
        The numbers of the trials.
    identical : bool
        Whether all responses are the same text.
    n_empty : int
        How many of them are empty.
    """

    def __init__(
        self,
        sink: StoreSink,
        key: TrialKey,
        response: Callable[[Trial], Completion],
        prompt_signals: Mapping[str, Any],
    ) -> None:
        self._sink, self._key, self._response = sink, key, response
        self._prompt_signals = prompt_signals
        self._recorded: set[str] = set()
        self._digest: int | None = None
        self.numbers: set[int] = set()
        self.identical, self.n_empty = True, 0

    def add(self, trial: Trial) -> Completion:
        """Take note of a trial that was just read or stored, and return its response."""
        response = self._response(trial)
        self.numbers.add(trial.trial)
        digest = hash(response)
        self.identical = self.identical and self._digest in (None, digest)
        self._digest = digest
        self.n_empty += not response.strip()
        self._recorded |= _not_none(response.signals)
        return response

    @property
    def recorded(self) -> set[str]:
        """The names of the signals that at least one of the trials has."""
        return self._recorded | _not_none(self._prompt_signals)

    def read(self, numbers: Collection[int]) -> list[Completion]:
        """Read the responses of trials, each trial compared with its hash.

        Raises
        ------
        StoreError
            If a trial can no longer be read.
        """
        trials = self._sink.trials_of({self._key: numbers})[self._key] if numbers else {}
        missing = [TrialId(self._key, number) for number in numbers if number not in trials]
        if missing:
            sentence = (
                f"{self._sink.name}: {list_first(missing)} was stored and can no longer be read; "
                "run the same command again"
            )
            raise StoreError(sentence, "damaged", "store", missing[0])
        return [self._response(trials[number]) for number in numbers]


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

    def __str__(self) -> str:
        return _in_file(*completions([self]))

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

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(map(_in_file, completions(self))),)


def completions(responses: Sequence[StoredText]) -> list[Completion]:
    """Read the responses to one question."""
    numbers = [response.number for response in responses]
    return responses[0].question.read(numbers) if numbers else []


def responses_in_turn(
    requests: Iterable[Any], responses: Mapping[int, Iterable[Any]], further: str | None = None
) -> list[Any]:
    """Return a response to each request of the harness.

    Parameters
    ----------
    requests : iterable of Instance
        The requests; clones of one are its trials.
    responses : mapping of int to iterable
        The responses to each, by the `id` of the request.
    further : str, optional
        Stands for further ones; without it they begin anew, as the harness pads a rank that has
        fewer requests than the others with its last one.
    """
    iterators = {
        key: chain.from_iterable(repeat(of_key))
        if further is None
        else chain(of_key, repeat(further))
        for key, of_key in responses.items()
    }
    return [next(iterators[id(request)]) for request in requests]


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


def are_stored(responses: Sequence[object]) -> bool:
    """Return whether the texts of responses are in a store."""
    return bool(responses) and isinstance(responses[0], StoredText)


# -- logged samples ------------------------------------------------------------------------------


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

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(with_texts, super().__iter__())

    def __getitem__(self, index: Any) -> Any:
        samples = super().__getitem__(index)
        return StoredSamples(samples) if isinstance(index, slice) else with_texts(samples)


def read_later(samples: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the logged samples of tasks, those with texts in a store as :class:`StoredSamples`."""
    return {
        task: StoredSamples(map(StoredSample, of_task))
        if any(map(_has_stored, of_task))
        else of_task
        for task, of_task in samples.items()
    }


def _has_stored(sample: Mapping[str, Any]) -> bool:
    return bool(sample.get("resps")) and isinstance(sample["resps"][0], StoredTexts)


def with_texts(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a logged sample with the texts and signals of its responses."""
    if not _has_stored(sample):
        return dict(sample)
    responses = completions(sample["resps"][0])
    texts = list(map(_in_file, responses))
    changed: dict[str, Any] = {"resps": [texts]}
    if "filtered_resps" in sample:
        changed["filtered_resps"] = [_texts_of(f, texts) for f in sample["filtered_resps"]]
    if sample.get("signals", {}) is None:
        changed |= signal_columns(responses)
    if isinstance(sample.get("lengths"), array):
        changed["lengths"] = sample["lengths"].tolist()
    return {**sample, **changed}


def _texts_of(filtered: Iterable[Any], texts: Sequence[str]) -> list[Any]:
    """Return filtered responses, of which a sample has some as parts of the responses."""
    return [
        texts[i][slice(*value)] if isinstance(value, TextPart) else value
        for i, value in enumerate(filtered)
    ]


def _in_file(response: str) -> str:
    """Return a text with question marks in the place of lone surrogates."""
    return response.encode("utf-8", "replace").decode("utf-8")
