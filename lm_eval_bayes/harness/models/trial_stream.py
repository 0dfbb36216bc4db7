"""Trials of a set of questions without barriers: what is missing is requested in trial order.

A :class:`RequestStream` gives a backend one request after another, as its slots fall free. A
:class:`StreamedTrials` knows which trials a run has and which are missing; their texts stay in the
store.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from tqdm import tqdm

from lm_eval_bayes._util.text import format_integer, plural
from lm_eval_bayes.harness.evaluation import RepeatedInstance, current_evaluation, trials_of
from lm_eval_bayes.harness.models.interface import Completion, RequestStream
from lm_eval_bayes.harness.models.stored_texts import (
    QuestionTexts,
    StoredText,
    StoredTexts,
    completions,
)
from lm_eval_bayes.store.trial import Trial, TrialKey

if TYPE_CHECKING:
    from lm_eval_bayes.harness.models.trials import RecordingMixin

#: Trials whose texts are in memory at a time while they are looked through.
BATCH = 500

#: A response that a question has now: the question's position, the trial's index, the response.
Arrival: TypeAlias = tuple[int, int, Completion]


class StreamedTrials:
    """The responses to a set of questions, from the store or newly sampled.

    Trial 0 of every question is requested before trial 1 of any. Below, `counts` has for each
    request the number of trials of its question, from the first on; a variant of the prompt has
    some of them.

    Parameters
    ----------
    model : RecordingMixin
        The recording model.
    instances : sequence of Instance
        The harness's requests, one for each question, or for each variant of its prompt.

    Attributes
    ----------
    planned : list of int
        The number of trials of each request's question.
    """

    def __init__(self, model: RecordingMixin, instances: Sequence[Any]) -> None:
        self._model, self._first = model, model.first_trial
        self._instances, self._requests = instances, model.trial_requests(instances)
        self._own = [trials_of(instance, self._first) for instance in instances]
        self.planned = [own.stop - self._first for own in self._own]
        self._positions: dict[TrialKey, list[int]] = defaultdict(list)
        # shared by the responses to a prompt, and filled at the end
        self._prompt_signals: dict[str, dict[str, Any]] = defaultdict(dict)
        self._texts: list[QuestionTexts] = []
        for position, request in enumerate(self._requests):
            self._positions[request.key].append(position)
            signals = self._prompt_signals[request.key.prompt]
            response = partial(model.completion, request, prompt_signals=signals)
            self._texts.append(QuestionTexts(model.sink, request.key, response, signals))
        self._stored = model.sink.numbers_of(self._positions)
        if any(self._stored.values()):
            self._print_stored()
        else:
            model.log_other_trials(self._positions)
        self._stream: RequestStream | None = None
        self._lost: set[tuple[int, int]] = set()

    def _print_stored(self) -> None:
        """Print how many of the trials that the run may take were stored when it began."""
        planned = zip(self._requests, self._own, strict=True)
        stored = sum(len(self._stored[request.key].intersection(own)) for request, own in planned)
        total = sum(map(len, self._own))
        sentence = f"{format_integer(stored)} of {plural(total, 'trial')} were stored"
        tqdm.write(sentence, file=sys.stderr)  # `run` does not show the harness's log

    def read(self, counts: Sequence[int]) -> Iterator[Arrival]:
        """Read the stored trials below the counts that are not here, and yield their responses."""
        wanted = (
            (key, number)
            for key, positions in self._positions.items()
            for number in range(self._first, self._first + max(counts[p] for p in positions))
            if number in self._stored[key] and number not in self._texts[positions[0]].numbers
            if any(number in self._numbers(p, counts) for p in positions)
        )
        while batch := list(islice(wanted, BATCH)):
            numbers: dict[TrialKey, list[int]] = defaultdict(list)
            for key, number in batch:
                numbers[key].append(number)
            stored = self._model.sink.trials_of(numbers)
            for key, number in batch:
                position, trial = self._positions[key][0], stored[key].get(number)
                if trial is None:  # it cannot be read, so it is missing
                    self._stored[key].discard(number)
                    self._lost.add((position, number - self._first))
                else:
                    self._model.take_stored(self._requests[position], trial)
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
        positions = [position for position, _ in self._missing(counts)]
        if not positions:
            return
        self._lost.clear()
        requests = (
            self._model.numbered(self._requests[position], self._first + trial, index)
            for index, (position, trial) in enumerate(self._missing(counts))
        )
        questions = [self._requests[position] for position in dict.fromkeys(positions)]
        self._stream = RequestStream(questions, len(positions), requests)
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
        """Return the responses of a request among some trials, by the index of the trial."""
        own = [trial for trial in trials if self._first + trial in self._own[position]]
        texts = self._texts[position].read([self._first + trial for trial in own])
        return dict(zip(own, texts, strict=True))

    def responses(self, counts: Sequence[int]) -> list[Sequence[Completion | StoredText]]:
        """Return the responses to every request, in the order of its trials.

        Texts stay in the store where all requests are those of tasks that read them question by
        question, in a run of one process.
        """
        for prompt, signals in self._model.prompt_signals_of(self._requests).items():
            self._prompt_signals[prompt].update(signals)
        stored: list[Any] = [
            StoredTexts(question, self._numbers(position, counts))
            for position, question in enumerate(self._texts)
        ]
        return stored if self._stay_in_store() else list(map(completions, stored))

    # -- internals ---------------------------------------------------------------------------

    def _stay_in_store(self) -> bool:
        evaluation = current_evaluation()
        if evaluation is None or int(getattr(self._model, "world_size", 1) or 1) > 1:
            return False
        return all(
            isinstance(instance, RepeatedInstance)
            and getattr(evaluation.tasks.get(str(instance.task_name)), "reads_stored_texts", False)
            for instance in self._instances
        )

    def _numbers(self, position: int, counts: Sequence[int]) -> range:
        """Return the numbers of a request's trials among the first of its question."""
        own = self._own[position]
        return range(own.start, self._first + counts[position], own.step)

    def _missing(self, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield position and index of the missing trials, in trial order."""
        wanted = [
            ([self._numbers(q, counts) for q in p], self._stored[key], p[0])
            for key, p in self._positions.items()
        ]
        for trial in range(max(counts)):
            number = self._first + trial
            for numbers, stored, position in wanted:
                is_here = number in stored or number in self._texts[position].numbers
                if not is_here and any(number in own for own in numbers):
                    yield position, trial

    def _received(self, trial: Trial) -> Iterator[Arrival]:
        # of questions that share the trial, the one by which it is missing has it last
        for position in reversed(self._positions[trial.key]):
            yield position, trial.trial - self._first, self._texts[position].add(trial)
