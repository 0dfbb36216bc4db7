"""One question's trials from several sources, each trial once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.runs.logged_texts import LoggedTexts
from lm_eval_bayes.runs.partial_runs import PartQuestion
from lm_eval_bayes.stats.validation import FloatArray


@dataclass(frozen=True, eq=False)
class United:
    """A question with the trials of several sources.

    Attributes
    ----------
    question : PartQuestion
        Its trials, each once: by number where no number stands twice, else source by source.
    repeated : int
        How many trials were there before.
    """

    question: PartQuestion
    repeated: int


def repeats(known: PartQuestion, more: PartQuestion, by_number: bool) -> npt.NDArray[np.bool_]:
    """Return which trials of a question are known already.

    A seed tells a trial, if its number or its text is the same too: seeds are hashes of 31 bits,
    and among many trials two may agree by accident. Trials without a seed are told by their
    numbers, where a number means the same in both.

    Parameters
    ----------
    known, more : PartQuestion
        The same question twice.
    by_number : bool
        Whether trials without a seed are the same if their numbers are.

    Returns
    -------
    array of bool, shape (N,)
        One for every trial of `more`.
    """
    seeds: dict[int, list[int]] = {}
    numbers = set()
    for place in range(known.trials.size):
        seed = known.seeds[place] if known.seeds is not None else None
        if seed is None:
            numbers.add(int(known.numbers[place]))
        else:
            seeds.setdefault(seed, []).append(place)

    def is_known(place: int) -> bool:
        seed = more.seeds[place] if more.seeds is not None else None
        if seed is None:
            return by_number and int(more.numbers[place]) in numbers
        return any(_same(known, one, more, place) for one in seeds.get(seed, ()))

    return np.array([is_known(place) for place in range(more.trials.size)], dtype=np.bool_)


def _same(known: PartQuestion, one: int, more: PartQuestion, other: int) -> bool:
    if known.digests is None or more.digests is None:
        return True
    number = bool(known.numbers[one] == more.numbers[other])
    return number or bool(known.digests[one] == more.digests[other])


def same_numbers_same_texts(pairs: Sequence[tuple[PartQuestion, PartQuestion]]) -> bool:
    """Return whether the trials of one number, of the same question twice, always agree.

    Trials that were sampled without a seed are then taken for the same ones. Where texts are
    missing, outcomes are compared.
    """
    some = False
    for first, second in pairs:
        _, one, other = np.intersect1d(first.numbers, second.numbers, return_indices=True)
        some = some or one.size > 0
        for left, right in ((first.digests, second.digests), (first.trials, second.trials)):
            if left is not None and right is not None:
                if not np.array_equal(left[one], right[other]):
                    return False
                break
    return some


def united(id: str, questions: Sequence[PartQuestion], by_number: bool) -> United:
    """Bring the trials of one question together; of a trial that stands twice the first counts.

    Parameters
    ----------
    id : str
        What to call the question.
    questions : sequence of PartQuestion
        The same question several times.
    by_number : bool
        As in :func:`repeats`.
    """
    found, repeated = questions[0], 0
    for more in questions[1:]:
        if (found.trials < 0).any():  # a grade counts, whichever source has it
            regraded = (found.trials < 0) & repeats(more, found, by_number)
            found = found.select(np.flatnonzero(~regraded))
        known = repeats(found, more, by_number)
        repeated += int(known.sum())
        found = _joined(found, more, np.flatnonzero(~known))
    return United(replace(found, id=id), repeated)


def _joined(first: PartQuestion, second: PartQuestion, new: npt.NDArray[np.intp]) -> PartQuestion:
    numbers = np.concatenate([first.numbers, second.numbers[new]])
    order = np.arange(numbers.size)
    if np.unique(numbers).size == numbers.size:
        order = np.argsort(numbers, kind="stable")
    digests = None
    if first.digests is not None and second.digests is not None:
        digests = np.concatenate([first.digests, second.digests[new]])[order]
    return PartQuestion(
        id=first.id,
        trials=np.concatenate([first.trials, second.trials[new]])[order],
        numbers=numbers[order],
        text=first.text or second.text,
        prompt=first.prompt or second.prompt,
        answers=_tuples(first.answers, second.answers, first, second, new, order),
        seeds=_tuples(first.seeds, second.seeds, first, second, new, order),
        digests=digests,
        measured=_columns(first.measured, second.measured, first, second, new, order),
        doc_id=second.doc_id if first.doc_id is None else first.doc_id,
        signals=_columns(first.signals, second.signals, first, second, new, order),
        logged=_logged(first, second, new, order),
    )


def _logged(
    first: PartQuestion,
    second: PartQuestion,
    new: npt.NDArray[np.intp],
    order: npt.NDArray[np.intp],
) -> LoggedTexts | None:
    if first.logged is None and second.logged is None:
        return None
    texts = first.logged or LoggedTexts.none(first.trials.size)
    return texts.with_trials(second.logged or LoggedTexts.none(second.trials.size), new, order)


def _tuples(
    one: Sequence[Any] | None,
    other: Sequence[Any] | None,
    first: PartQuestion,
    second: PartQuestion,
    new: npt.NDArray[np.intp],
    order: npt.NDArray[np.intp],
) -> tuple[Any, ...] | None:
    if one is None and other is None:
        return None
    left = one if one is not None else (None,) * first.trials.size
    right = other if other is not None else (None,) * second.trials.size
    both = [*left, *(right[i] for i in new)]
    return tuple(both[i] for i in order)


def _columns(
    one: Mapping[str, FloatArray],
    other: Mapping[str, FloatArray],
    first: PartQuestion,
    second: PartQuestion,
    new: npt.NDArray[np.intp],
    order: npt.NDArray[np.intp],
) -> dict[str, FloatArray]:
    def column(columns: Mapping[str, FloatArray], name: str, n_trials: int) -> FloatArray:
        return columns[name] if name in columns else np.full(n_trials, np.nan)

    n, m = first.trials.size, second.trials.size
    return {
        name: np.concatenate([column(one, name, n), column(other, name, m)[new]])[order]
        for name in dict.fromkeys([*one, *other])
    }
