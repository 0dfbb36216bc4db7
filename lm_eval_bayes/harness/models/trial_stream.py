"""Trials of a set of questions without barriers: what is missing is requested in trial order.

A :class:`RequestStream` gives a backend one request after another, as its slots fall free. A
:class:`StreamedTrials` holds the responses, and knows which are missing. Where the texts can stay
in the store, it holds none of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from lm_eval_bayes.harness.models.interface import Completion, RequestStream, TrialRequest
from lm_eval_bayes.harness.models.stored_texts import (
    BATCH,
    QuestionTexts,
    StoredText,
    StoredTexts,
    completions,
    stay_in_store,
)
from lm_eval_bayes.store.trial import Trial, TrialKey

if TYPE_CHECKING:
    from lm_eval_bayes.harness.models.trials import RecordingMixin

#: Questions whose trials are looked up at a time.
KEYS = 20


class SortedNumbers:
    """A set of numbers of trials, 8 bytes each.

    Examples
    --------
    >>> numbers = SortedNumbers([2, 0, 1])
    >>> numbers.discard(1)
    >>> [number in numbers for number in range(4)], len(numbers)
    ([True, False, True, False], 2)
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = array("q", sorted(numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._numbers, number)
        return at < len(self._numbers) and self._numbers[at] == number

    def discard(self, number: int) -> None:
        """Remove a number, if it is there."""
        if number in self:
            del self._numbers[bisect_left(self._numbers, number)]


#: A response that a question has now: the question's position, the trial's index, the response.
Arrival: TypeAlias = tuple[int, int, Completion]


class StreamedTrials:
    """The responses to a set of questions, from the store or newly sampled.

    Trial 0 of every question is requested before trial 1 of any. Below, `counts` has the number of
    trials of each question, from its first on.

    Parameters
    ----------
    model : RecordingMixin
        The recording model.
    instances : sequence of Instance
        The harness's requests, one for each question.

    Attributes
    ----------
    in_store : bool
        Whether the texts stay in the store.
    """

    def __init__(self, model: RecordingMixin, instances: Sequence[Any]) -> None:
        self._model = model
        self._first = model.trial_range.first
        self._requests = model.trial_requests(instances)
        self._positions: dict[TrialKey, list[int]] = {}
        for position, request in enumerate(self._requests):
            self._positions.setdefault(request.key, []).append(position)
        self._in_store: dict[TrialKey, SortedNumbers] = {}
        keys = iter(self._positions)
        while some := list(islice(keys, KEYS)):
            for key, numbers in model.sink.numbers_of(some).items():
                self._in_store[key] = SortedNumbers(numbers)
        if not any(self._in_store.values()):
            model.log_other_trials(self._positions)
        # the responses with their texts, where these are not in the store
        self._responses: list[dict[int, Completion]] = [{} for _ in self._requests]
        # shared by the responses to a prompt, and filled at the end
        self._prompt_signals: dict[str, dict[str, Any]] = {}
        self._texts: list[QuestionTexts] = []
        self.in_store = stay_in_store(model, instances)
        if self.in_store:
            sink: Any = model.sink
            for r in self._requests:
                signals = self._prompt_signals.setdefault(r.key.prompt, {})
                self._texts.append(QuestionTexts(sink, r.key, signals, self._first))
        self._stream: RequestStream | None = None
        self._lost: set[tuple[int, int]] = set()

    def read(self, counts: Sequence[int]) -> Iterator[Arrival]:
        """Read the stored trials below the counts that are not here, and yield their responses."""
        wanted = (
            self._model.numbered(self._requests[positions[0]], number)
            for key, positions in self._positions.items()
            for number in self._numbers(positions, counts)
            if number in self._in_store[key] and not self._is_here(positions[0], number)
        )
        while batch := list(islice(wanted, BATCH)):
            stored = self._model.stored_trials(batch)
            self._model.count_from_store(len(stored))
            for request in batch:
                trial = stored.get((request.key, request.trial))
                if trial is None:  # it cannot be read, so it is missing
                    self._in_store[request.key].discard(request.trial)
                    position = self._positions[request.key][0]
                    self._lost.add((position, request.trial - self._first))
                else:
                    yield from self._received(trial)

    def missing(self, counts: Sequence[int]) -> set[tuple[int, int]]:
        """Return position and index of the trials below the counts that are nowhere.

        Of questions that share their trials the first one is named.
        """
        return set(self._missing(counts))

    def sample(
        self, counts: Sequence[int], *, disable_tqdm: bool = False
    ) -> Generator[Arrival, None, None]:
        """Sample the missing trials in trial order; store each as it ends and yield its response.

        Closing the iterator cancels what is running.
        """
        questions: dict[int, TrialRequest] = {}
        total = 0
        for position, _ in self._missing(counts):
            questions[position] = self._requests[position]
            total += 1
        if not total:
            return
        self._lost.clear()
        requests = (
            replace(
                self._model.numbered(self._requests[position], self._first + trial), index=index
            )
            for index, (position, trial) in enumerate(self._missing(counts))
        )
        self._stream = RequestStream(list(questions.values()), total, requests)
        for trial in self._model.sampled(self._stream, disable_tqdm):
            yield from self._received(trial)

    def are_coming(self, missing: Collection[tuple[int, int]]) -> bool:
        """Return whether `sample` will yield missing trials: not those that could not be read."""
        return self._lost.isdisjoint(missing)

    def end(self, wait_s: float) -> None:
        """Start no further trial; those that are running may end within `wait_s` seconds."""
        if self._stream is not None:
            self._stream.end(wait_s)

    def common(self, most: int) -> int:
        """Return how many of the first `most` trials all questions have, here or in the store."""
        first = next(self._missing([most] * len(self._requests)), None)
        return most if first is None else first[1]

    def completions(self, position: int, trials: Sequence[int]) -> dict[int, Completion]:
        """Return responses to a question with their texts, by the index of the trial."""
        numbers = [self._first + trial for trial in trials]
        if self._texts:
            responses = completions([StoredText(self._texts[position], n) for n in numbers])
        else:
            responses = [self._responses[position][number] for number in numbers]
        return dict(zip(trials, responses, strict=True))

    def responses(self, counts: Sequence[int]) -> list[Sequence[Completion | StoredText]]:
        """Return the responses to every question, in the order of its trials."""
        signals = self._model.prompt_signals_of(self._requests)
        for prompt, of_prompt in signals.items():
            self._prompt_signals.setdefault(prompt, {}).update(of_prompt)
        numbers = [range(self._first, self._first + count) for count in counts]
        if self._texts:
            return [StoredTexts(*pair) for pair in zip(self._texts, numbers, strict=True)]
        return [
            [responses[number] for number in of_question]
            for responses, of_question in zip(self._responses, numbers, strict=True)
        ]

    # -- internals ---------------------------------------------------------------------------

    def _numbers(self, positions: Sequence[int], counts: Sequence[int]) -> range:
        """Return the numbers of the wanted trials, which several questions may share."""
        return range(self._first, self._first + max(counts[p] for p in positions))

    def _missing(self, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield position and index of the missing trials, in trial order."""
        wanted = [(key, p, max(counts[q] for q in p)) for key, p in self._positions.items()]
        for trial in range(max(counts)):
            number = self._first + trial
            for key, positions, count in wanted:
                stored = number in self._in_store[key]
                if trial < count and not stored and not self._is_here(positions[0], number):
                    yield positions[0], trial

    def _is_here(self, position: int, number: int) -> bool:
        return number in (self._texts or self._responses)[position]

    def _received(self, trial: Trial) -> Iterator[Arrival]:
        signals = self._prompt_signals.setdefault(trial.key.prompt, {})
        # of questions that share the trial, the one by which it is missing has it last
        for position in reversed(self._positions[trial.key]):
            response = self._model.completion(self._requests[position], trial, signals)
            if self._texts:
                self._texts[position].add(trial, response)
            else:
                self._responses[position][trial.trial] = response
            yield position, trial.trial - self._first, response
