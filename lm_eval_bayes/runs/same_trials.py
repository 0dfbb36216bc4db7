"""Which trials of partial runs of one model and task are the same, and the union of trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.runs.trials import PER_RUN, UNNUMBERED, PartialRun, Question, Trials
from lm_eval_bayes.stats import IntArray


def common(first: PartialRun, second: PartialRun) -> tuple[Trials, Trials]:
    """Return the graded trials of both, with the numbers of questions of the first.

    Of the second only those of questions that the first has, too.
    """
    others = second.table(first.ids).graded()
    return first.table(first.ids).graded(), others.take(others.question >= 0)


def by_number(first: PartialRun, second: PartialRun) -> bool:
    """Return whether trials are the same where their numbers are, if one of them has no seed.

    Of counts they are: a question is counted once.
    """
    greedy = not (first.sampled and second.sampled and first.ordered and second.ordered)
    trials = common(first, second)
    named = all(is_named(table).all() for table in trials)
    return greedy or named or same_numbers_same_texts(*trials)


def is_named(trials: Trials) -> npt.NDArray[np.bool_]:
    """Return which numbers are those of a log, with the id of its run."""
    return (trials.number >= PER_RUN) & (trials.number % PER_RUN < UNNUMBERED)


def n_common(first: PartialRun, second: PartialRun) -> int:
    """Return how many trials of the second are in the first."""
    return int(duplicates(*common(first, second), by_number(first, second)).sum())


def overlap(first: PartialRun, second: PartialRun) -> bool:
    """Return whether partial runs hold the same trials, not others of their seeds or numbers.

    Trials of one seed are the same if their texts are, without texts if their outcomes are; trials
    without seeds if their texts are, where both have texts.
    """
    a, b = common(first, second)
    b = b.take(duplicates(a, b, by_number(first, second)))
    if not (b.number.size and first.ordered and second.ordered):
        return bool(b.number.size)
    if bool(first.fingerprint) != bool(second.fingerprint):
        b = replace(b, digest=None)  # a log may have cut what a store has whole
    seeds: list[Any] = [trials.seed for trials in (a, b)]
    with_seeds = [
        replace(trials, number=seed).take(seed != np.array(None))
        for trials, seed in zip((a, b), seeds, strict=True)
        if seed is not None
    ]
    if len(with_seeds) == 2 and all(trials.number.size for trials in with_seeds):
        return same_numbers_same_texts(*with_seeds)
    return a.digest is None or b.digest is None or same_numbers_same_texts(a, b)


def identities(trials: Trials) -> list[tuple[int, int, str | None]]:
    """Return the question, the number and the setting of every trial."""
    settings = [None] * trials.number.size if trials.setting is None else trials.setting.tolist()
    return list(zip(trials.question.tolist(), trials.number.tolist(), settings, strict=True))


def duplicates(first: Trials, second: Trials, by_number: bool) -> npt.NDArray[np.bool_]:
    """Return which trials of the second are trials of the first.

    Trials of one seed are the same if their numbers or their texts are the same too: seeds are
    hashes of 31 bits, and among many trials two may agree by accident. Trials of which one or
    both have no seed are the same if their numbers are, where a number means the same in both.
    Those of two settings are not the same.

    Parameters
    ----------
    first, second : Trials
        Of the same questions.
    by_number : bool
        Whether trials of which one has no seed are the same if their numbers are.

    Returns
    -------
    array of bool, shape (T,)
        One per trial of `second`.
    """
    if not by_number and (first.seed is None or second.seed is None):
        return np.zeros(second.number.size, dtype=np.bool_)
    keys = identities(first)
    seeds = [None] * len(keys) if first.seed is None else first.seed.tolist()
    by_seed: dict[tuple[object, ...], list[int]] = {}
    for row, (key, seed) in enumerate(zip(keys, seeds, strict=True)):
        by_seed.setdefault((key[0], key[2], seed), []).append(row)
    without_seed = {key for key, seed in zip(keys, seeds, strict=True) if seed is None}
    every, with_texts = set(keys), first.digest is not None and second.digest is not None
    is_duplicate = np.zeros(second.number.size, dtype=np.bool_)
    for row, key in enumerate(identities(second)):
        seed = None if second.seed is None else second.seed[row]
        if by_number and key in (every if seed is None else without_seed):
            is_duplicate[row] = True
            continue
        is_duplicate[row] = seed is not None and any(
            not with_texts
            or first.number[other] == second.number[row]
            or first.digest[other] == second.digest[row]  # type: ignore[index]
            for other in by_seed.get((key[0], key[2], seed), ())
        )
    return is_duplicate


def same_numbers_same_texts(first: Trials, second: Trials) -> bool:
    """Return whether trials of one number, of the same question twice, always have one text.

    Trials that were sampled without a seed are then taken for the same ones. Where texts are
    missing, outcomes are compared.
    """
    rows = {key: row for row, key in reversed(list(enumerate(identities(first))))}
    pairs = [(rows[key], row) for row, key in enumerate(identities(second)) if key in rows]
    a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    outcomes: list[Any] = [first.digest, second.digest]
    if first.digest is None or second.digest is None:
        outcomes = [t.category if t.score is None else t.score for t in (first, second)]
    return a.size > 0 and np.array_equal(outcomes[0][a], outcomes[1][b])


def merge_trials(
    first: PartialRun, second: PartialRun, by_number: bool
) -> tuple[tuple[Question, ...], Trials]:
    """Merge the trials of two partial runs; of a trial that occurs twice that of the first counts.

    Trials of a question are ordered by number where no number occurs twice, else source by source.
    A grade counts whichever source has it. `by_number` is as in :func:`duplicates`.
    """
    order = {id: code for code, id in enumerate({**first.ids, **second.ids})}
    questions = {question.id: question for question in first.questions}
    for question in second.questions:
        earlier = questions.get(question.id)
        questions[question.id] = question if earlier is None else earlier.joined(question)
    a, b = first.table(order), second.table(order)
    if not a.is_graded.all():
        a = a.take(a.is_graded | ~duplicates(b, a, by_number))
    b = b.take(~duplicates(a, b, by_number))
    joined = Trials.joined([a, b])
    return tuple(questions[id] for id in order), joined.take(_ordered(joined))


def _ordered(trials: Trials) -> IntArray:
    """Return the order of trials: by question, and by number where none occurs twice."""
    order = np.lexsort((trials.number, trials.question))
    question, number = trials.question[order], trials.number[order]
    again = (np.diff(question) == 0) & (np.diff(number) == 0)
    repeated = np.isin(trials.question, question[1:][again])
    return np.lexsort((np.where(repeated, 0, trials.number), trials.question))
