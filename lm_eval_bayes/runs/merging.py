"""Merging of partial runs of one model and task, trial by trial.

A trial that occurs in several files counts once. Partial runs of different models stay apart.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.text import add_counts, first_names, plural, shorten_middle
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.attempt_numbers import PER_RUN, UNNUMBERED
from lm_eval_bayes.runs.model_names import distinct_names
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.runs.trials import PartialRun, Question, Trials, counted, task_run_of
from lm_eval_bayes.stats import IntArray


def merge_runs(
    partials: Sequence[PartialRun], *, dedupe: bool | None, by_path: bool, argument: str
) -> tuple[list[TaskRun], list[int], list[str]]:
    """Merge partial runs of one model and task, and give different models different names.

    They belong together if their identifying arguments are the same: those of the model, the
    generation settings, the chat template, …. In one folder the newest file counts; of older ones
    the trials that it lacks are added. The trials of other folders are added.

    Parameters
    ----------
    partials : sequence of PartialRun
        The partial runs, in the order of the paths.
    dedupe : bool or None
        Whether a trial that occurs twice counts once; otherwise it is refused. None if the
        command has no such option.
    by_path : bool
        Whether the runs of different paths stay apart, each path with names of its own. A trial
        at two paths is then refused too, or with `dedupe` named in a warning.
    argument : str
        The name of a path in an error.

    Returns
    -------
    runs : list of TaskRun
        In the order of the partial runs.
    paths : list of int
        For every run the index of its path, or of the first of them.
    warnings : list of str
        What was left out, and which names got a number.

    Raises
    ------
    InvalidInputError
        If a trial occurs twice, or partial runs of one model contradict each other.
    """
    partials = _with_names(partials)
    merger = _Merger(dedupe, argument)
    merged = [
        merger.merge_all(same_prompts)
        for group in _groups(partials, by_path)
        for same_prompts in merger.split_by_prompts(merger.merge_folders(group))
    ]
    if by_path:
        merger.check_paths(merged)
    names: list[str] = []
    for _, group in itertools.groupby(merged, lambda partial: partial.path if by_path else 0):
        group_names, warnings = distinct_names(list(group))
        names += group_names
        merger.warnings += warnings
    runs = [task_run_of(partial, name) for partial, name in zip(merged, names, strict=True)]
    return runs, [partial.path for partial in merged], merger.warnings


def _with_names(partials: Sequence[PartialRun]) -> list[PartialRun]:
    """Give partial runs without results files the models of those that hold all their trials."""
    named = [partial for partial in partials if not partial.unnamed]
    originals = (next((o for o in named if p.unnamed and _is_copy(p, o)), p) for p in partials)
    return [
        replace(partial, model=o.model, arguments=o.arguments, version=o.version)
        for partial, o in zip(partials, originals, strict=True)
    ]


def _is_copy(partial: PartialRun, original: PartialRun) -> bool:
    """Return whether all trials of a partial run, with their texts, are in another one."""
    if partial.task != original.task or partial.trials is None or original.trials is None:
        return False
    a, b = _common(original, partial)
    if a.digest is None or b.digest is None or b.number.size < partial.n_trials:
        return False
    return {*_keys(b)} <= {*_keys(a)} and same_numbers_same_texts(a, b)


def _groups(partials: Sequence[PartialRun], by_path: bool) -> list[list[PartialRun]]:
    """Return the partial runs that belong together, in the order of the first of each."""
    groups: list[list[PartialRun]] = []
    by_name: dict[tuple[object, ...], list[list[PartialRun]]] = {}
    for partial in partials:
        path = partial.path if by_path else 0
        of_name = by_name.setdefault((partial.model, partial.task, path), [])
        if _joins(partial, of_name, _same_model):
            continue
        groups.append([partial])
        of_name.append(groups[-1])
    return groups


def _joins(
    partial: PartialRun,
    groups: Sequence[list[PartialRun]],
    fits: Callable[[PartialRun, PartialRun], bool],
) -> bool:
    """Add a partial run to the first group whose runs it all fits; return whether there is one."""
    group = next((group for group in groups if all(fits(partial, p) for p in group)), None)
    if group is not None:
        group.append(partial)
    return group is not None


def _same_model(first: PartialRun, second: PartialRun) -> bool:
    """Return whether two partial runs of one name have the same model and settings."""
    if bool(first.fingerprint) != bool(second.fingerprint):
        # a store names arguments otherwise than the harness, and has the stops of the engine and
        # the length that was sampled where the harness was given none
        left_out = {"until"}
        if not ("max_gen_toks" in first.settings and "max_gen_toks" in second.settings):
            left_out.add("max_gen_toks")
        a, b = ({k: v for k, v in p.settings.items() if k not in left_out} for p in (first, second))
        return a == b
    identifying = attrgetter("settings", "arguments", "fingerprint")
    return bool(identifying(first) == identifying(second))


@dataclass
class _Merger:
    """Merges partial runs that belong together, and collects warnings."""

    dedupe: bool | None
    argument: str
    warnings: list[str] = field(default_factory=list)

    def merge_folders(self, partials: Sequence[PartialRun]) -> list[PartialRun]:
        """Return one partial run per folder: the newest file, and what older ones add."""
        folders: dict[object, list[PartialRun]] = {}
        for number, partial in enumerate(partials):
            key = number if partial.folder is None else partial.folder
            folders.setdefault(key, []).append(partial)
        return [self._merge_folder(sorted(group, key=_age)) for group in folders.values()]

    def _merge_folder(self, partials: Sequence[PartialRun]) -> PartialRun:
        merged = partials[-1]
        for older in reversed(partials[:-1]):
            difference = _difference(older, merged) or _prompt_difference(older, merged)
            if not difference and (older.trials is None or merged.trials is None):
                difference = "counts, of which it is unknown which trials are the same"
            if difference:
                self.warnings.append(
                    f"{_file(older)} was left out, because {_file(merged)} is newer and does not "
                    f"fit it: {difference}"
                )
                continue
            n_common = _n_common(merged, older)
            if n_common == older.n_trials:
                note = f"{_file(older)} was left out: its trials are all in {_file(merged)}"
            elif 0 < n_common < merged.n_trials and not self.dedupe:
                raise self._duplicates(merged, older, n_common)
            else:
                note = f"the trials of {_file(older)} and {_file(merged)} were merged"
                note += f"; {n_common:,} that both hold count once" if n_common else ""
                merged = _sum(older, merged, n_common, prefer_second=n_common > 0)
            merged = replace(merged, notes=(*merged.notes, note))
        return merged

    def split_by_prompts(self, partials: Sequence[PartialRun]) -> list[list[PartialRun]]:
        """Separate partial runs with different prompts of the same questions."""
        groups: list[list[PartialRun]] = []
        for partial in partials:
            if _joins(partial, groups, lambda p, other: not _prompt_difference(p, other)):
                continue
            if groups:
                first = groups[0][0].source
                self.warnings.append(
                    f"{partial.source} has other prompts than {first}: they are kept apart"
                )
            groups.append([partial])
        return groups

    def merge_all(self, partials: Sequence[PartialRun]) -> PartialRun:
        """Merge partial runs of different folders."""
        merged = partials[0]
        for partial in partials[1:]:
            difference = _difference(partial, merged)
            if difference:
                rule = f"have the same version, scores and metric of {partial.task} for "
                rule += partial.model
                got = f"{difference} ({partial.source}, unlike {merged.source})"
                raise InvalidInputError.of(self.argument, "mismatch", rule, got)
            if partial.trials is None or merged.trials is None:
                merged = self._sum_of_counts(merged, partial)
                continue
            n_common = _n_common(merged, partial)
            if n_common and not self.dedupe:
                raise self._duplicates(merged, partial, n_common)
            if n_common:
                _check_scores(merged, partial, self.argument)
                names = first_names(merged.sources)
                self.warnings.append(
                    f"{n_common:,} trials of {partial.source} are in {names} too and count once"
                )
            merged = _sum(merged, partial, n_common)
        return replace(merged, notes=(*merged.notes, *_notes_on_merged(partials)))

    def check_paths(self, partials: Sequence[PartialRun]) -> None:
        """Refuse trials that two paths hold in different files.

        Two models may have one name and one seed, as checkpoints at one place. Trials are
        therefore the same only where all of their texts are.
        """
        for first, second in itertools.combinations(partials, 2):
            files, others = ({*map(os.path.realpath, run.sources)} for run in (first, second))
            may_share = (
                first.path != second.path
                and (first.model, first.task) == (second.model, second.task)
                and _same_model(first, second)
                and None not in (first.trials, second.trials)
                and files.isdisjoint(others)  # one file at two paths was meant
                and same_numbers_same_texts(*_common(first, second))
            )
            n_common = _n_common(first, second) if may_share else 0
            if n_common and not self.dedupe:
                rule = (
                    f"hold other trials of {second.model} on {second.task} than {first.source} "
                    f"(--dedupe treats them as independent): {n_common:,} of {second.n_trials:,} "
                    f"trials of {second.source} are also in it"
                )
                raise InvalidInputError.of(self.argument, "duplicate", rule, second.source)
            if n_common:
                self.warnings.append(
                    f"{n_common:,} trials of {second.source} are in {first.source} too and are "
                    "treated as independent"
                )

    def _sum_of_counts(self, first: PartialRun, second: PartialRun) -> PartialRun:
        """Add questions: of counts it is unknown which trials are the same."""
        known, more = ({q.id: q for q in counted(run).questions} for run in (first, second))
        common = [id for id in known if id in more]
        if common and not (self.dedupe and all(known[id] == more[id] for id in common)):
            rule = f"have the counts of {first.model} on {first.task} once"
            got = f"question {common[0]} in {first.source} and in {second.source}"
            raise InvalidInputError.of(self.argument, "duplicate", rule, got)
        sources, questions = (*first.sources, *second.sources), {**known, **more}
        return replace(first, questions=tuple(questions.values()), trials=None, sources=sources)

    def _duplicates(
        self, merged: PartialRun, partial: PartialRun, n_common: int
    ) -> InvalidInputError:
        advice = "name only one of them" if self.dedupe is None else "--dedupe counts it once"
        rule = (
            f"have every trial of {partial.model} on {partial.task} once ({advice}): "
            f"{n_common:,} of {partial.n_trials:,} trials of {partial.source} are also in "
            f"{first_names(merged.sources)}"
        )
        return InvalidInputError.of(self.argument, "duplicate", rule, partial.source)


def _notes_on_merged(partials: Sequence[PartialRun]) -> list[str]:
    """Return notes on files of runs that were merged, and on versions that differ."""
    notes = []
    runs = [p for p in partials if p.folder is None]
    if len(runs) > 1 and not any(p.trials is None for p in runs):
        names = [_file(run) for run in runs]
        if len(set(names)) < len(names):  # as in folders of one tool
            names = [run.source for run in runs]
        notes.append(f"the trials of {len(runs):,} files were merged: {first_names(names)}")
    recorded = [partial.provenance.versions for partial in partials]
    for name in dict.fromkeys(name for versions in recorded for name in versions):
        times = Counter(str(versions[name]) for versions in recorded if name in versions)
        if len(times) > 1:
            listed = [f"{shorten_middle(v, 12)} ({plural(n, 'file')})" for v, n in times.items()]
            notes.append(f"runs of different versions were merged: {name} {first_names(listed)}")
    return notes


def _file(partial: PartialRun) -> str:
    return Path(partial.source).name


def _age(partial: PartialRun) -> tuple[bool, str, int]:
    """Return what sorts files by time, and copies, without results or of longer name, before."""
    return not partial.unnamed, partial.stamp, -len(_file(partial))


def _difference(first: PartialRun, second: PartialRun) -> str:
    """Return in what a partial run differs from another that it would be added to, "" if not."""
    if first.version != second.version:
        versions = first.version or "unknown", second.version or "unknown"
        return f"version {versions[0]} of the task, not {versions[1]}"
    if first.scored != second.scored:
        return "scores" if first.scored else "categories"
    if first.weights != second.weights:
        return "other bounds" if first.scored else "other scores of the categories"
    if (first.metric, first.filter) != (second.metric, second.filter):
        return "another metric or filter"
    return ""


def _prompt_difference(first: PartialRun, second: PartialRun) -> str:
    prompts = {question.id: question.prompt for question in first.questions}
    of_both = ((prompts.get(question.id), question.prompt) for question in second.questions)
    n_different = sum(bool(a and b and a != b) for a, b in of_both)
    return f"other prompts for {n_different:,} questions" if n_different else ""


# -- trials ----------------------------------------------------------------------------------------


def _common(first: PartialRun, second: PartialRun) -> tuple[Trials, Trials]:
    """Return the graded trials of both, with the numbers of questions of the first.

    Of the second only those of questions that the first has, too.
    """
    others = second.table(first.ids).graded()
    return first.table(first.ids).graded(), others.take(others.question >= 0)


def by_number(first: PartialRun, second: PartialRun) -> bool:
    """Return whether trials are the same where their numbers are, if one of them has no seed."""
    greedy = not (first.sampled and second.sampled)
    trials = _common(first, second)
    named = all(_is_named(table).all() for table in trials)
    return greedy or named or same_numbers_same_texts(*trials)


def _is_named(trials: Trials) -> npt.NDArray[np.bool_]:
    """Return which numbers are those of a log, with the id of its run."""
    return (trials.number >= PER_RUN) & (trials.number % PER_RUN < UNNUMBERED)


def _n_common(first: PartialRun, second: PartialRun) -> int:
    """Return how many trials of the second are in the first."""
    return int(duplicates(*_common(first, second), by_number(first, second)).sum())


def _sum(
    first: PartialRun, second: PartialRun, n_common: int, prefer_second: bool = False
) -> PartialRun:
    leading, further = (second, first) if prefer_second else (first, second)
    questions, trials = merge_trials(leading, further, by_number(first, second))
    seconds = (first.provenance.seconds, second.provenance.seconds)
    total = None if None in seconds else sum(s for s in seconds if s is not None)
    verifiers = [*first.verifiers, *second.verifiers]
    return replace(
        leading,
        sources=tuple(dict.fromkeys([*first.sources, *second.sources])),
        questions=questions,
        trials=trials,
        provenance=replace(leading.provenance, seconds=total),
        notes=_merged_notes(first, second, are_apart=not n_common),
        signals_error=first.signals_error or second.signals_error,
        verifiers=tuple(v for i, v in enumerate(verifiers) if v not in verifiers[:i]),
    )


def _merged_notes(first: PartialRun, second: PartialRun, are_apart: bool) -> tuple[str, ...]:
    """Return the notes of both; the numbers of trials in them are summed where no trial is in both.

    Otherwise a sentence about a number of trials names the files that it is about.
    """
    notes = list(first.notes)
    for note in second.notes:
        sums = [add_counts(other, note) for other in notes]
        number = next((i for i, total in enumerate(sums) if total is not None), None)
        if number is None:
            notes.append(note)
        elif are_apart:
            notes[number] = str(sums[number])
        elif note != notes[number]:
            notes[number] = f"{notes[number]} ({first_names(first.sources)})"
            notes.append(f"{note} ({first_names(second.sources)})")
    return tuple(dict.fromkeys(notes))


def _check_scores(first: PartialRun, second: PartialRun, argument: str) -> None:
    """Refuse trials of one run that have one number and other scores."""
    a, b = _common(first, second)
    columns = [t.category.astype(float) if t.score is None else t.score for t in (a, b)]
    scores = dict(zip(_keys(a), columns[0].tolist(), strict=True))
    named = _is_named(b).tolist()
    for key, score, is_named in zip(_keys(b), columns[1].tolist(), named, strict=True):
        if is_named and scores.get(key, score) != score:
            rule = f"give every trial of {second.model} on {second.task} one score"
            id = first.questions[key[0]].id
            got = f"a trial of question {id} with another in {second.source} than in {first.source}"
            raise InvalidInputError.of(argument, "mismatch", rule, got)


def _keys(trials: Trials) -> list[tuple[int, int]]:
    """Return the question and the number of every trial."""
    return list(zip(trials.question.tolist(), trials.number.tolist(), strict=True))


def duplicates(first: Trials, second: Trials, by_number: bool) -> npt.NDArray[np.bool_]:
    """Return which trials of the second are trials of the first.

    Trials of one seed are the same if their numbers or their texts are the same too: seeds are
    hashes of 31 bits, and among many trials two may agree by accident. Trials of which one or
    both have no seed are the same if their numbers are, where a number means the same in both.

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
    keys = _keys(first)
    seeds = [None] * len(keys) if first.seed is None else first.seed.tolist()
    by_seed: dict[tuple[int, int], list[int]] = {}
    for row, (key, seed) in enumerate(zip(keys, seeds, strict=True)):
        by_seed.setdefault((key[0], seed), []).append(row)
    without_seed = {key for key, seed in zip(keys, seeds, strict=True) if seed is None}
    every, with_texts = set(keys), first.digest is not None and second.digest is not None
    is_duplicate = np.zeros(second.number.size, dtype=np.bool_)
    for row, key in enumerate(_keys(second)):
        seed = None if second.seed is None else second.seed[row]
        if by_number and key in (every if seed is None else without_seed):
            is_duplicate[row] = True
            continue
        is_duplicate[row] = seed is not None and any(
            not with_texts
            or first.number[other] == second.number[row]
            or first.digest[other] == second.digest[row]  # type: ignore[index]
            for other in by_seed.get((key[0], seed), ())
        )
    return is_duplicate


def same_numbers_same_texts(first: Trials, second: Trials) -> bool:
    """Return whether trials of one number, of the same question twice, always have one text.

    Trials that were sampled without a seed are then taken for the same ones. Where texts are
    missing, outcomes are compared.
    """
    rows = {key: row for row, key in reversed(list(enumerate(_keys(first))))}
    pairs = [(rows[key], row) for row, key in enumerate(_keys(second)) if key in rows]
    a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    one, other = first.digest, second.digest
    if one is None or other is None:
        one, other = first.category, second.category
    return a.size > 0 and np.array_equal(one[a], other[b])


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
    joined = a + b
    return tuple(questions[id] for id in order), joined.take(_ordered(joined))


def _ordered(trials: Trials) -> IntArray:
    """Return the order of trials: by question, and by number where none occurs twice."""
    order = np.lexsort((trials.number, trials.question))
    question, number = trials.question[order], trials.number[order]
    again = (np.diff(question) == 0) & (np.diff(number) == 0)
    repeated = np.isin(trials.question, question[1:][again])
    return np.lexsort((np.where(repeated, 0, trials.number), trials.question))
