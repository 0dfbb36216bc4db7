"""Merging of partial runs of one model and task, trial by trial.

A trial that occurs in several files counts once. Partial runs of different models stay apart.

An earlier run is no evidence for runs that have its trials.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.text import first_names, plural, shorten_middle
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.provenance import distinct_names, distinct_parts
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.runs.trials import PER_RUN, UNNUMBERED, PartialRun, Question, Trials, task_run_of
from lm_eval_bayes.stats import IntArray

#: The endings of the name of a file.
_ENDINGS = re.compile(r"(\.[A-Za-z]\w*)+$")


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
    merger = _Merger(dedupe, argument)
    merged = [merger.merge_all(group) for group in _groups(partials, by_path)]
    if by_path:
        merger.check_paths(merged)
    names: list[str] = []
    for _, group in itertools.groupby(merged, lambda partial: partial.path if by_path else 0):
        group_names, warnings = distinct_names(list(group))
        names += group_names
        merger.warnings += warnings
    runs = [task_run_of(partial, name) for partial, name in zip(merged, names, strict=True)]
    return runs, [partial.path for partial in merged], merger.warnings


def _groups(partials: Sequence[PartialRun], by_path: bool) -> list[list[PartialRun]]:
    """Return the partial runs that belong together, in the order of the first of each."""
    groups, by_name = list[list[PartialRun]](), dict[tuple[object, ...], list[list[PartialRun]]]()
    for partial in partials:
        path = partial.path if by_path else 0
        of_name = by_name.setdefault((partial.model, partial.task, path), [])
        own = next((group for group in of_name if all(_fits(partial, p) for p in group)), None)
        if own is None:
            own = []
            groups.append(own)
            of_name.append(own)
        own.append(partial)
    return groups


def _fits(first: PartialRun, second: PartialRun) -> bool:
    """Return whether partial runs of one name have one model, its settings, and one prompt each."""
    prompts, others = ({q.id: q.prompt for q in p.questions if q.prompt} for p in (first, second))
    same_prompts = all(others[id] == prompts[id] for id in prompts.keys() & others.keys())
    return same_prompts and _same_model(first, second)


def _same_model(first: PartialRun, second: PartialRun) -> bool:
    """Return whether two partial runs of one name have the same model and settings."""
    if bool(first.fingerprint) != bool(second.fingerprint):
        # a store names arguments otherwise than the harness, and has the stops of the engine and
        # the length that was sampled where the harness was given none
        left_out = {"until"} | ({"max_gen_toks"} - (first.settings.keys() & second.settings))
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

    def merge_all(self, partials: Sequence[PartialRun]) -> PartialRun:
        """Merge partial runs: of a folder the newest file, and what older ones add."""
        folders: dict[object, list[PartialRun]] = {}
        for partial in partials:
            folders.setdefault(partial.folder or partial.source, []).append(partial)
        ordered = [p for group in folders.values() for p in sorted(group, key=_age, reverse=True)]
        ordered = _with_settings(ordered)
        merged = ordered[0]
        for number, partial in enumerate(ordered[1:], 1):
            is_older = partial.folder in {p.folder for p in ordered[:number]} - {None}
            if difference := _difference(partial, merged):
                if is_older:
                    reason = f"{_file(merged)} is newer and does not fit it: {difference}"
                    self.warnings.append(f"{_file(partial)} was left out, because {reason}")
                    continue
                rule = f"have the same version, scores and metric of {partial.task} for "
                rule += partial.model
                got = f"{difference} ({partial.source}, unlike {merged.source})"
                raise InvalidInputError.of(self.argument, "mismatch", rule, got)
            n_common = _n_common(merged, partial)
            if is_older and n_common == partial.n_trials:
                note = f"{_file(partial)} was left out: its trials are all in {_file(merged)}"
                merged = replace(merged, notes=(*merged.notes, note))
                continue
            covers = is_older and n_common == merged.n_trials
            if n_common and not (self.dedupe or covers):
                advice = "name one of them" if self.dedupe is None else "--dedupe counts it once"
                rule = f"have every trial of {partial.model} on {partial.task} once ({advice}): "
                rule += f"{n_common:,} of {partial.n_trials:,} trials of {partial.source} are "
                rule += f"also in {first_names(merged.sources)}"
                raise InvalidInputError.of(self.argument, "duplicate", rule, partial.source)
            if n_common:
                _check_scores(merged, partial, self.argument)
                names = first_names(merged.sources)
                common = f"{n_common:,} trials of {partial.source} are in {names} too"
                self.warnings.append(f"{common} and count once")
            merged = _sum(merged, partial)
        notes = _notes_on_merged(merged.sources, partials)
        return replace(merged, notes=(*merged.notes, *notes))

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
                and first.ordered
                and second.ordered
                and files.isdisjoint(others)  # one file at two paths was meant
                and same_numbers_same_texts(*_common(first, second))
            )
            n_common = _n_common(first, second) if may_share else 0
            if n_common and not self.dedupe:
                rule = f"hold other trials of {second.model} on {second.task} than {first.source} "
                rule += f"(--dedupe treats them as independent): {n_common:,} of "
                rule += f"{second.n_trials:,} trials of {second.source} are also in it"
                raise InvalidInputError.of(self.argument, "duplicate", rule, second.source)
            if n_common:
                both = f"{n_common:,} trials of {second.source} are in {first.source} too"
                self.warnings.append(f"{both} and are treated as independent")


def _with_settings(partials: Sequence[PartialRun]) -> list[PartialRun]:
    """Label the trials by their setting: where no column does, by the run, a folder or a file.

    Files of other questions are parts of one run, and files of one folder that number other trials.
    """
    runs: dict[str, tuple[set[str], set[tuple[str, int]]]] = {}
    paths = [str(partial.folder or partial.source) for partial in partials]
    if len({*paths}) == 1 and all(partial.trials.setting is None for partial in partials):
        return list(partials)
    for at, (path, partial) in enumerate(zip(paths, partials, strict=True)):
        trials = partial.trials
        if trials.setting is not None:
            continue
        folder = None if _is_named(trials).any() else Path(path).parent
        ids = [question.id for question in partial.questions]
        numbers = {(ids[row], number) for row, number in _keys(trials)}
        for run, (of_run, numbers_of_run) in runs.items():
            continues = Path(run).parent == folder and numbers_of_run.isdisjoint(numbers)
            if continues or of_run.isdisjoint(ids):
                paths[at] = run
                break
        questions, trials_of_run = runs.setdefault(paths[at], (set(), set()))
        questions.update(ids)
        trials_of_run.update(numbers)
    parts = distinct_parts(paths)
    stems = {path: _ENDINGS.sub("", part) for path, part in parts.items()}
    labels = stems if len({*stems.values()}) == len(parts) else parts
    return [
        replace(partial, trials=partial.trials.in_setting(labels[path]))
        for partial, path in zip(partials, paths, strict=True)
    ]


def _notes_on_merged(sources: Sequence[str], partials: Sequence[PartialRun]) -> list[str]:
    """Return notes on files of runs that were merged, and on versions that differ."""
    notes, names = [], [Path(source).name for source in sources]
    if len(names) > 1:
        # names are the same in folders of one tool
        named = first_names(names if len(set(names)) == len(names) else sources)
        notes.append(f"the trials of {len(names):,} files were merged: {named}")
    recorded = [partial.provenance.versions for partial in partials]
    for name in dict.fromkeys(name for versions in recorded for name in versions):
        times = Counter(str(versions[name]) for versions in recorded if name in versions)
        if len(times) > 1:
            listed = [f"{shorten_middle(v, 12)} ({plural(n, 'file')})" for v, n in times.items()]
            notes.append(f"runs of different versions were merged: {name} {first_names(listed)}")
    return notes


def _file(partial: PartialRun) -> str:
    return Path(partial.source).name


def _age(partial: PartialRun) -> tuple[str, int]:
    """Return what sorts files by time, and copies, of longer name, before."""
    return partial.stamp, -len(_file(partial))


def _difference(first: PartialRun, second: PartialRun) -> str:
    """Return in what a partial run differs from another that it would be added to, "" if not."""
    if first.version != second.version:
        return f"version {first.version or '?'} of the task, not {second.version or '?'}"
    if first.scored != second.scored:
        return "scores" if first.scored else "categories"
    if first.weights != second.weights:
        return "other bounds" if first.scored else "other scores of the categories"
    if (first.metric, first.filter) != (second.metric, second.filter):
        return "another metric or filter"
    return ""


# -- trials ----------------------------------------------------------------------------------------


def _common(first: PartialRun, second: PartialRun) -> tuple[Trials, Trials]:
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
    trials = _common(first, second)
    named = all(_is_named(table).all() for table in trials)
    return greedy or named or same_numbers_same_texts(*trials)


def _is_named(trials: Trials) -> npt.NDArray[np.bool_]:
    """Return which numbers are those of a log, with the id of its run."""
    return (trials.number >= PER_RUN) & (trials.number % PER_RUN < UNNUMBERED)


def _n_common(first: PartialRun, second: PartialRun) -> int:
    """Return how many trials of the second are in the first."""
    return int(duplicates(*_common(first, second), by_number(first, second)).sum())


def _sum(first: PartialRun, second: PartialRun) -> PartialRun:
    questions, trials = merge_trials(first, second, by_number(first, second))
    a, b = first.provenance.seconds, second.provenance.seconds
    verifiers = [*first.verifiers, *second.verifiers]
    return replace(
        first,
        sources=tuple(dict.fromkeys([*first.sources, *second.sources])),
        questions=questions,
        trials=trials,
        provenance=replace(first.provenance, seconds=None if a is None or b is None else a + b),
        ordered=first.ordered and second.ordered,
        notes=tuple(dict.fromkeys([*first.notes, *second.notes])),
        signals_error=first.signals_error or second.signals_error,
        verifiers=tuple(v for i, v in enumerate(verifiers) if v not in verifiers[:i]),
    )


def _check_scores(first: PartialRun, second: PartialRun, argument: str) -> None:
    """Refuse trials of one run that have one number and other scores, and unequal counts."""
    a, b = _common(first, second)
    are_counts = not (first.ordered and second.ordered)
    columns = [t.category if t.score is None else t.score for t in (a, b)]
    if are_counts and a.digest is not None and b.digest is not None:
        columns = [a.digest, b.digest]
    named = (_is_named(b) | are_counts).tolist()
    scores = dict(zip(_keys(a), columns[0].tolist(), strict=True))
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
    outcomes, others = first.digest, second.digest
    if outcomes is None or others is None:
        outcomes, others = first.category, second.category
    return a.size > 0 and np.array_equal(outcomes[a], others[b])


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


def check_other_trials(runs: Sequence[TaskRun], prior: TaskRun) -> None:
    """Refuse a prior run whose trials are counted already.

    Raises
    ------
    InvalidInputError
        If a file of the prior run is one of those that `runs` were read from, or if a run of the
        same model has some of its trials.
    """
    files = set(map(os.path.realpath, prior.sources))
    for run in runs:
        if not files.isdisjoint(map(os.path.realpath, run.sources)) or _share_trials(run, prior):
            rule = f"hold other trials than those of {run.model}, or they would count twice"
            raise InvalidInputError.of("prior", "duplicate", rule, prior.label)


def _share_trials(run: TaskRun, prior: TaskRun) -> bool:
    """Return whether runs of one model have trials of one seed, all with the same outcomes.

    Of outcomes that are all alike nothing is known.
    """
    names = [(of.model.split(" (")[0], of.task) for of in (run, prior)]
    if names[0] != names[1]:
        return False
    outcomes, others = _outcomes(run), _outcomes(prior)
    common = outcomes.keys() & others.keys()
    same = all(outcomes[trial] == others[trial] for trial in common)
    return same and len({outcomes[trial] for trial in common}) > 1


def _outcomes(run: TaskRun) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Return the outcome and the answer of every trial with a seed, by its question and seed."""
    outcomes: dict[tuple[str, int], tuple[int, str | None]] = {}
    if run.seeds is None or run.trials is None:
        return outcomes
    for row, id in enumerate(run.question_ids):
        answers = run.answers[row] if run.answers else (None,) * run.trials[row].size
        trials = zip(run.seeds[row], run.trials[row].tolist(), answers, strict=True)
        outcomes |= {(id, seed): (outcome, a) for seed, outcome, a in trials if seed is not None}
    return outcomes
