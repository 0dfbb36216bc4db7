"""In which setting each trial of a model and task was made: labels, copies, and shared seeds."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from lm_eval_bayes._util.text import first_names, format_date
from lm_eval_bayes.runs.provenance import distinct_parts
from lm_eval_bayes.runs.same_trials import identities, is_named, overlap
from lm_eval_bayes.runs.task_run import Provenance
from lm_eval_bayes.runs.trials import PartialRun, Trials, labels_of, objects

#: A question by its id, with the number of a trial.
_Trial = tuple[str, int]

#: The endings of the name of a file, and the fraction of a second in it.
_ENDINGS = re.compile(r"(\.[A-Za-z]\w*|\.\d{6})+$")

#: Largest probability by which settings may agree in every text without being copies.
_COINCIDENCE = 1e-6


def _engine(provenance: Provenance) -> str:
    """Return the backend with the version of it, or of the library below it; "" if unknown.

    Examples
    --------
    >>> _engine(Provenance(backend="vllm", versions={"vllm": "0.9.1", "torch": "2.7"}))
    'vllm 0.9.1'
    >>> _engine(Provenance(backend="hf", versions={"transformers": "4.51", "lm_eval": "0.4.9"}))
    'hf transformers 4.51'
    """
    backend, versions = provenance.backend, provenance.versions
    name = next((n for n in (backend, "server", "transformers") if n in versions), "")
    parts = (backend, name if name != backend else "", str(versions.get(name, "")))
    return " ".join(filter(None, parts))


#: What a label is of: by name a function from what a run records to it, "" or None if unknown.
RECORDED: Mapping[str, Callable[[Provenance], str | None]] = {
    "engine": _engine,
    "day": lambda provenance: format_date(provenance.date, "%Y-%m-%d"),
}

#: What settings may be, besides a column of a table.
FACTORS = ("run", "prompt", *RECORDED, "trial", "none")


def is_recorded(partial: PartialRun, factor: str | None) -> bool:
    """Return whether a partial run has what settings of this kind are told by."""
    if factor == "prompt":
        return any(question.prompt for question in partial.questions)
    return factor not in RECORDED or bool(_recorded(partial, factor))


def _recorded(partial: PartialRun, factor: str | None) -> str:
    """Return the label that a partial run records; "" for none."""
    label_of = RECORDED.get(factor or "")
    return (label_of and label_of(partial.provenance)) or ""


def with_settings(
    partials: Sequence[PartialRun], factor: str | None, *, same_seeds: bool
) -> tuple[list[PartialRun], list[str]]:
    """Label the trials of one model and task by their setting, and count copies once.

    Labels are those of the user, else what `factor` names, by default a column, else the run.

    Parameters
    ----------
    partials : sequence of PartialRun
        In the order in which they are merged.
    factor : str or None
        One of :data:`FACTORS`; None or another name for the labels of a column.
    same_seeds : bool
        Whether a trial that settings share by its seed counts in one of them, in turn.

    Returns
    -------
    partials : list of PartialRun
        In the same order, without what copies repeat.
    notes : list of str
        On the settings that are copies.
    """
    labelled = [_with_own_label(partial, factor) for partial in partials]
    runs = _runs(labelled, factor, same_seeds)
    if len(runs) > 1 or any(partial.trials.setting is not None for partial in labelled):
        names = _names([labelled[run[0]] for run in runs])
        for name, run in zip(names, runs, strict=True):
            for at in run:
                labelled[at] = _in_setting(labelled[at], name)
    labelled, notes = _without_copies(labelled)
    return _in_turn(labelled) if same_seeds else labelled, notes


def _in_setting(partial: PartialRun, label: str) -> PartialRun:
    return replace(partial, trials=partial.trials.in_setting(label))


def _with_own_label(partial: PartialRun, factor: str | None) -> PartialRun:
    """Return the trials with the label that their run is told by, not by other runs."""
    label = partial.label or _recorded(partial, factor)
    if label or factor in FACTORS:
        partial = replace(partial, trials=replace(partial.trials, setting=None))
    return _in_setting(partial, label) if label else partial


# -- runs ----------------------------------------------------------------------------------------


def _runs(partials: Sequence[PartialRun], factor: str | None, same_seeds: bool) -> list[list[int]]:
    """Return the indices of the partial runs of every run, which is a setting.

    A run are files that share trials, or that go on with other trials or questions.
    """
    if factor == "none":
        return [[*range(len(partials))]]
    keys = [_keys(partial) for partial in partials]

    def is_one(i: int, j: int) -> bool:
        first, second = partials[i], partials[j]
        if first.source == second.source or keys[i].isdisjoint(keys[j]):
            return first.source == second.source
        beside = first.folder is not None and first.folder == second.folder
        return (beside or not same_seeds) and overlap(first, second)

    def goes_on(i: int, j: int) -> bool:
        both = (partials[i], partials[j])
        if both[0].ids.keys().isdisjoint(both[1].ids):
            return True
        beside = len({Path(partial.source).parent for partial in both}) == 1
        may_go_on = all(p.trials.setting is None and not is_named(p.trials).any() for p in both)
        return beside and may_go_on and keys[i].isdisjoint(keys[j])

    runs: list[list[int]] = []
    for at, partial in enumerate(partials):
        if factor == "prompt":
            own = [r for r in runs if all(_same_prompts(partials[i], partial) for i in r)][:1]
        else:
            own = [run for run in runs if any(is_one(i, at) for i in run)]
            own = own or [run for run in runs if all(goes_on(i, at) for i in run)][:1]
        runs = sorted([*(run for run in runs if run not in own), [*chain(*own), at]])
    return runs


def _keys(partial: PartialRun) -> set[tuple[str, object]]:
    """Return the questions with the numbers of their trials, and with the seeds."""
    seeds = () if partial.trials.seed is None else partial.trials.seed
    questions = [partial.questions[code].id for code in partial.trials.question]
    named = {
        (id, f"seed {seed}") for id, seed in zip(questions, seeds, strict=False) if seed is not None
    }
    return {*zip(questions, partial.trials.number.tolist(), strict=True), *named}


def _same_prompts(first: PartialRun, second: PartialRun) -> bool:
    prompts, others = ({q.id: q.prompt for q in run.questions} for run in (first, second))
    return all(prompts[id] == others[id] for id in prompts.keys() & others.keys())


def _names(runs: Sequence[PartialRun]) -> list[str]:
    """Return the names of runs by the parts of their paths that differ."""
    paths = [str(run.folder or run.source) for run in runs]
    prefixes = [f"samples_{run.task.replace('/', '__')}_" for run in runs]
    files = [Path(run.source).name.removeprefix(p) for run, p in zip(runs, prefixes, strict=True)]
    own = [
        path if paths.count(path) == 1 else f"{path}/{file}"
        for path, file in zip(paths, files, strict=True)
    ]
    parts = distinct_parts(own)
    stems = {path: _ENDINGS.sub("", part) for path, part in parts.items()}
    names = stems if len({*stems.values()}) == len(runs) else parts
    return [names[path] for path in own]


def by_pass(trials: Trials) -> Trials:
    """Label trials by their pass over the questions: the place of their number in their run.

    Examples
    --------
    >>> by_pass(Trials.of_question([1, 0], [4, 9])).setting.tolist()
    ['trial 1', 'trial 2']
    """
    numbers: dict[str | None, set[int]] = {}
    for _, number, run in identities(trials):
        numbers.setdefault(run, set()).add(number)
    places = {run: {n: i for i, n in enumerate(sorted(of), 1)} for run, of in numbers.items()}
    labels = [
        f"{run or ''} trial {places[run][number]}".lstrip() for _, number, run in identities(trials)
    ]
    return replace(trials, setting=objects(labels))


# -- settings that repeat each other ---------------------------------------------------------------


def _without_copies(partials: Sequence[PartialRun]) -> tuple[list[PartialRun], list[str]]:
    """Return settings whose texts agree as one, and a note; without texts none is a copy."""
    texts: dict[str, dict[_Trial, int]] = {}
    for partial in partials:
        digest = partial.trials.digest
        if digest is not None and partial.trials.setting is not None and partial.ordered:
            for trial, label, of_trial in zip(*_labelled(partial), digest.tolist(), strict=True):
                texts.setdefault(label, {}).setdefault(trial, of_trial)
    first_of: dict[str, str] = {}
    for label, own in texts.items():
        others = [first for first in texts if first_of.get(first) == first]
        first_of[label] = next((f for f in others if _are_copies(own, texts[f])), label)
    copies = {label: first for label, first in first_of.items() if label != first}
    if not copies:
        return list(partials), []
    kept = []
    for partial in partials:
        trials, labels = _labelled(partial)
        is_new = [
            label not in copies or trial not in texts[copies[label]]
            for trial, label in zip(trials, labels, strict=True)
        ]
        setting = objects([copies.get(label, label) for label in labels])
        table = replace(partial.trials, setting=setting).take(np.array(is_new, dtype=np.bool_))
        kept.append(replace(partial, trials=table))
    n_settings = len({label for partial in partials for label in labels_of(partial.trials.setting)})
    listed = first_names([f"{label} (of {first})" for label, first in copies.items()], 8)
    return kept, [f"{len(copies):,} of {n_settings:,} settings count once, as copies: {listed}"]


def _labelled(partial: PartialRun) -> tuple[list[_Trial], list[str]]:
    """Return the question and the number of every trial, and its label."""
    ids = [question.id for question in partial.questions]
    rows = identities(partial.trials)
    return [(ids[row], number) for row, number, _ in rows], [str(label) for *_, label in rows]


def _are_copies(texts: Mapping[_Trial, int], others: Mapping[_Trial, int]) -> bool:
    """Return whether the texts of all common trials agree, and hardly by chance.

    They do by chance if so many trials, with the shares of texts of each question and of one more
    trial with the shares of all, agree with a probability of one in a million or more.
    """
    trials = texts.keys() & others.keys()
    if any(texts[trial] != others[trial] for trial in trials):
        return False
    pooled = Counter(texts[trial] for trial in trials)
    by_question: dict[str, Counter[int]] = {}
    for trial in trials:
        by_question.setdefault(trial[0], Counter())[texts[trial]] += 1
    log_probability = sum(
        n * math.log((n + pooled[text] / len(trials)) / (of_question.total() + 1))
        for of_question in by_question.values()
        for text, n in of_question.items()
    )
    return log_probability < math.log(_COINCIDENCE)


def _in_turn(partials: Sequence[PartialRun]) -> list[PartialRun]:
    """Leave every trial that settings share by its seed in one of them.

    They take turns over questions and over the seeds of a question, as in a Latin square.
    """
    holders: dict[str, dict[tuple[int, int], dict[str, None]]] = {}
    for partial in partials:
        trials = partial.trials.graded()
        if trials.seed is not None and trials.setting is not None:
            graded = replace(partial, trials=trials)
            for (id, number), label, seed in zip(*_labelled(graded), trials.seed, strict=True):
                if seed is not None:
                    of_question = holders.setdefault(id, {})
                    of_question.setdefault((number, seed), {})[label] = None
    keeper: dict[tuple[str, int, int], str] = {}
    for turn, (id, of_question) in enumerate(holders.items()):
        shared = [(key, [*labels]) for key, labels in of_question.items() if len(labels) > 1]
        for place, ((number, seed), labels) in enumerate(shared, turn):
            keeper[id, number, seed] = labels[place % len(labels)]
    kept = []
    for partial in partials:
        trials, seeds = partial.trials, partial.trials.seed
        if seeds is not None:
            rows = zip(*_labelled(partial), seeds, strict=True)
            keeps = [keeper.get((*trial, seed), label) == label for trial, label, seed in rows]
            trials = trials.take(np.array(keeps, dtype=np.bool_))
        kept.append(replace(partial, trials=trials))
    return kept
