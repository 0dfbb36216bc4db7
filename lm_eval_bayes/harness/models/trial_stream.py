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
from lm_eval_bayes.harness.evaluation import RepeatedInstance, current_evaluation
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

    Trial 0 of every question is requested before trial 1 of any. Below, `counts` has the number of
    trials of each question, from its first on.

    Parameters
    ----------
    model : RecordingMixin
        The recording model.
    instances : sequence of Instance
        The harness's requests, one for each question.
    """

    def __init__(self, model: RecordingMixin, instances: Sequence[Any]) -> None:
        self._model, self._first = model, model.first_trial
        self._instances, self._requests = instances, model.trial_requests(instances)
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
        planned = [
            (request.key, range(self._first, self._first + int(instance.repeats or 1)))
            for request, instance in zip(self._requests, self._instances, strict=True)
        ]
        stored = sum(len(self._stored[key].intersection(numbers)) for key, numbers in planned)
        total = sum(len(numbers) for _, numbers in planned)
        sentence = f"{format_integer(stored)} of {plural(total, 'trial')} were stored"
        tqdm.write(sentence, file=sys.stderr)  # `run` does not show the harness's log

    def read(self, counts: Sequence[int]) -> Iterator[Arrival]:
        """Read the stored trials below the counts that are not here, and yield their responses."""
        wanted = (
            (key, number)
            for key, positions in self._positions.items()
            for number in range(self._first, self._first + max(counts[p] for p in positions))
            if number in self._stored[key] and number not in self._texts[positions[0]].numbers
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
        """Return responses to a question with their texts, by the index of the trial."""
        texts = self._texts[position].read([self._first + trial for trial in trials])
        return dict(zip(trials, texts, strict=True))

    def responses(self, counts: Sequence[int]) -> list[Sequence[Completion | StoredText]]:
        """Return the responses to every question, in the order of its trials.

        Texts stay in the store where all requests are those of tasks that read them question by
        question, in a run of one process.
        """
        for prompt, signals in self._model.prompt_signals_of(self._requests).items():
            self._prompt_signals[prompt].update(signals)
        stored: list[Any] = [
            StoredTexts(question, range(self._first, self._first + count))
            for question, count in zip(self._texts, counts, strict=True)
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

    def _missing(self, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield position and index of the missing trials, in trial order."""
        wanted = [
            (p[0], max(counts[q] for q in p), self._stored[key], self._texts[p[0]].numbers)
            for key, p in self._positions.items()
        ]
        for trial in range(max(counts)):
            number = self._first + trial
            for position, count, stored, read in wanted:
                if trial < count and number not in stored and number not in read:
                    yield position, trial

    def _received(self, trial: Trial) -> Iterator[Arrival]:
        # of questions that share the trial, the one by which it is missing has it last
        for position in reversed(self._positions[trial.key]):
            yield position, trial.trial - self._first, self._texts[position].add(trial)
