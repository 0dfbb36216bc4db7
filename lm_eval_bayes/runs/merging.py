"""Merging of partial runs of one model and task, trial by trial.

A trial that occurs in several files counts once. Partial runs of different models stay apart, and
runs of one model are its settings.

An earlier run is no evidence for runs that have its trials.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from lm_eval_bayes._util.text import first_names, plural, shorten_middle
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import lookup, mappings
from lm_eval_bayes.runs.provenance import distinct_names
from lm_eval_bayes.runs.same_trials import (
    by_number,
    common,
    identities,
    is_named,
    merge_trials,
    n_common,
    same_numbers_same_texts,
)
from lm_eval_bayes.runs.settings import (
    by_pass,
    is_recorded,
    prompts_of,
    repeated_seeds,
    with_settings,
    without_copies,
)
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.runs.trials import PartialRun, labels_of, task_run_of


def merge_runs(
    partials: Sequence[PartialRun],
    *,
    dedupe: bool | None,
    by_path: bool,
    argument: str,
    settings: str | None = None,
    same_seeds: bool = False,
) -> tuple[list[TaskRun], list[int], list[str]]:
    """Merge partial runs of one model and task, and give different models different names.

    They belong together if their identifying arguments are the same: those of the model, the
    generation settings, the chat template, …; and if the user labels them both. Of files in one
    folder, the newest counts for trials that they have in common.

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
    settings : str or None
        What the labels of settings are of, see :func:`~lm_eval_bayes.runs.settings.with_settings`.
    same_seeds : bool
        Whether a trial that settings share by its seed counts in one of them, in turn.

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
        If a trial occurs twice, partial runs of one model contradict each other, or nothing records
        what the labels of settings are to be of.
    """
    if partials and not any(is_recorded(partial, settings) for partial in partials):
        rule = f"be what files record of their runs, and none records the {settings} "
        rule += "(--setting LABEL=RUN and --columns setting=NAME give labels)"
        raise InvalidInputError.of("settings", "missing", rule, settings)
    merger = _Merger(dedupe, argument, settings, same_seeds)
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
    """Return the partial runs that belong together, those with labels of the user first."""
    groups, by_name = list[list[PartialRun]](), dict[tuple[object, ...], list[list[PartialRun]]]()
    for partial in sorted(partials, key=lambda p: (p.path if by_path else 0, not p.label)):
        path = partial.path if by_path else 0
        of_name = by_name.setdefault((partial.model, partial.task, path), [])
        own = next((group for group in of_name if _fits(partial, group)), None)
        if own is None:
            own = []
            groups.append(own)
            of_name.append(own)
        own.append(partial)
    return groups


def _fits(partial: PartialRun, group: Sequence[PartialRun]) -> bool:
    """Return whether a partial run is of the model of others; labelled ones are of one."""
    labelled = [other for other in group if other.label]
    of_them = [_same_model(partial, other) for other in labelled or group]
    return bool(partial.label) or (any(of_them) if labelled else all(of_them))


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
    settings: str | None
    same_seeds: bool
    warnings: list[str] = field(default_factory=list)

    def merge_all(self, partials: Sequence[PartialRun]) -> PartialRun:
        """Merge partial runs: of a folder the newest file, and what older ones add."""
        folders: dict[object, list[PartialRun]] = {}
        for partial in partials:
            folders.setdefault(partial.folder or partial.source, []).append(partial)
        ordered = [p for group in folders.values() for p in sorted(group, key=_age, reverse=True)]
        for partial in ordered:
            if difference := _difference(partial, ordered[0]):
                rule = f"have the same version, scores and metric of {partial.task} for "
                rule += f"{partial.model}, and one text for a name in `bayes_prompts` (name the "
                rule += "files of one)"
                got = f"{difference} ({partial.source}, unlike {ordered[0].source})"
                raise InvalidInputError.of(self.argument, "mismatch", rule, got)
        runs = with_settings(ordered, self.settings)
        merged = self._joined([self._run(run) for run in runs])
        merged = self.with_own_seeds(merged, [partial for run in runs for partial in run])
        if self.settings == "trial":
            merged = replace(merged, trials=by_pass(merged.trials))
        return replace(merged, notes=(*merged.notes, *_notes_on_merged(merged, partials)))

    def _run(self, partials: Sequence[PartialRun]) -> PartialRun:
        """Join the partial runs of one run, those of each folder first."""
        folders = itertools.groupby(partials, lambda partial: partial.folder or partial.source)
        return self._joined([self._joined([*of_folder]) for _, of_folder in folders])

    def _joined(self, partials: Sequence[PartialRun]) -> PartialRun:
        """Join partial runs; of one folder the newest is the first."""
        merged = partials[0]
        for partial in partials[1:]:
            is_older = partial.folder is not None and partial.folder == merged.folder
            n_same = n_common(merged, partial)
            if is_older and n_same == partial.n_trials:
                note = f"{_file(partial)} was left out: its trials are all in {_file(merged)}"
                merged = replace(merged, notes=(*merged.notes, note))
                continue
            covers = is_older and n_same == merged.n_trials
            if n_same and not (self.dedupe or self.same_seeds or covers):
                advice = "name one of them" if self.dedupe is None else "--dedupe counts it once"
                rule = f"have every trial of {partial.model} on {partial.task} once ({advice}): "
                rule += f"{n_same:,} of {partial.n_trials:,} trials of {partial.source} are "
                rule += f"also in {first_names(merged.sources)}"
                raise InvalidInputError.of(self.argument, "duplicate", rule, partial.source)
            if n_same:
                _check_scores(merged, partial, self.argument)
                names = first_names(merged.sources)
                repeated = f"{n_same:,} trials of {partial.source} are in {names} too"
                self.warnings.append(f"{repeated} and count once")
            merged = _sum(merged, partial)
        return merged

    def with_own_seeds(self, merged: PartialRun, partials: Sequence[PartialRun]) -> PartialRun:
        """Count settings that are copies once, and so each seed that settings share, if allowed."""
        trials, notes = without_copies(merged.trials) if merged.ordered else (merged.trials, [])
        prompts = prompts_of(partials, merged.ids)
        repeated = repeated_seeds(trials, prompts, in_turn=self.same_seeds)
        if repeated:
            n = f"{len(repeated):,} of {trials.category.size:,} trials"
            if not (self.dedupe or self.same_seeds):
                rule = f"have other seeds in each setting of {merged.model} on {merged.task}"
                if self.dedupe is not None:
                    rule += " (--same-seeds counts a seed in one of them, --dedupe in the first)"
                got = f"{n} with the seed of another setting's"
                raise InvalidInputError.of(self.argument, "duplicate", rule, got)
            notes.append(f"{n} were left out: another setting has their seeds")
            trials = trials.take(np.delete(np.arange(trials.category.size), repeated))
        return replace(merged, trials=trials, notes=(*merged.notes, *notes))

    def check_paths(self, partials: Sequence[PartialRun]) -> None:
        """Refuse trials that two paths hold in different files.

        Two models may have one name and one seed, as checkpoints at one place. Trials are
        therefore the same only where all of their texts are.
        """
        anywhere = [replace(p, trials=replace(p.trials, setting=None)) for p in partials]
        for first, second in itertools.combinations(anywhere, 2):
            files, others = ({*map(os.path.realpath, run.sources)} for run in (first, second))
            may_share = (
                first.path != second.path
                and (first.model, first.task) == (second.model, second.task)
                and _same_model(first, second)
                and first.ordered
                and second.ordered
                and files.isdisjoint(others)  # one file at two paths was meant
                and same_numbers_same_texts(*common(first, second))
            )
            n_same = n_common(first, second) if may_share else 0
            if n_same and not self.dedupe:
                rule = f"hold other trials of {second.model} on {second.task} than {first.source} "
                rule += f"(--dedupe treats them as independent): {n_same:,} of "
                rule += f"{second.n_trials:,} trials of {second.source} are also in it"
                raise InvalidInputError.of(self.argument, "duplicate", rule, second.source)
            if n_same:
                both = f"{n_same:,} trials of {second.source} are in {first.source} too"
                self.warnings.append(f"{both} and are treated as independent")


def _notes_on_merged(merged: PartialRun, partials: Sequence[PartialRun]) -> list[str]:
    """Return notes on the settings of runs, else on files, and on versions that differ."""
    notes, names = [], [Path(source).name for source in merged.sources]
    labels = labels_of(merged.trials.setting)
    if len(names) > 1 and len(labels) > 1:
        notes.append(f"{len(labels):,} settings: {first_names(labels, 16)}")
    elif len(names) > 1:
        # names are the same in folders of one tool
        named = first_names(names if len(set(names)) == len(names) else merged.sources)
        notes.append(f"the trials of {len(names):,} files were merged: {named}")
    protocols = (
        {"protocol": p.provenance.protocol} if p.provenance.protocol else {} for p in partials
    )
    both = zip(partials, protocols, strict=True)
    recorded = [{**partial.provenance.versions, **protocol} for partial, protocol in both]
    for name in dict.fromkeys(name for versions in recorded for name in versions):
        times = Counter(str(versions[name]) for versions in recorded if name in versions)
        if len(times) > 1:
            listed = [f"{shorten_middle(v, 24)} ({plural(n, 'file')})" for v, n in times.items()]
            notes.append(f"the runs differ in {name}: {first_names(listed)}")
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
    own, others = (
        {str(variant.get("name")): variant for variant in mappings(prompts)}
        for prompts in (lookup(p.provenance.metadata, "bayes", "prompts") for p in (first, second))
    )
    differing = [name for name in own if own[name] != others.get(name, own[name])]
    are_labels = not (first.label and second.label)
    return f"another text of prompt {differing[0]}" if differing and are_labels else ""


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
    a, b = common(first, second)
    are_counts = not (first.ordered and second.ordered)
    columns = [t.category if t.score is None else t.score for t in (a, b)]
    if are_counts and a.digest is not None and b.digest is not None:
        columns = [a.digest, b.digest]
    named = (is_named(b) | are_counts).tolist()
    scores = dict(zip(identities(a), columns[0].tolist(), strict=True))
    for key, score, is_one in zip(identities(b), columns[1].tolist(), named, strict=True):
        if is_one and scores.get(key, score) != score:
            rule = f"give every trial of {second.model} on {second.task} one score"
            id = first.questions[key[0]].id
            got = f"a trial of question {id} with another in {second.source} than in {first.source}"
            raise InvalidInputError.of(argument, "mismatch", rule, got)


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
