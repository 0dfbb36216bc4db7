"""In which setting each trial of a model and task was made: labels, copies, and shared seeds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import TypeAlias

import numpy as np

from lm_eval_bayes._util.text import first_names, format_date
from lm_eval_bayes.runs.provenance import distinct_parts
from lm_eval_bayes.runs.same_trials import identities, is_named, overlap
from lm_eval_bayes.runs.task_run import Provenance
from lm_eval_bayes.runs.trials import SEVERAL, PartialRun, Trials, objects

#: The endings of the name of a file, and the fraction of a second in it.
_ENDINGS = re.compile(r"(\.[A-Za-z]\w*|\.\d{6})+$")

#: Settings are copies if so many different texts agree, and none differs: one in a million by
#: chance where a text agrees with a probability of 1/2.
_COPIED = 20


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


#: Hashes of the texts of trials, by the question and their number.
Texts: TypeAlias = dict[tuple[int, int], set[int]]

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
    return factor not in RECORDED or bool(_label(partial, factor))


def _label(partial: PartialRun, factor: str | None) -> str:
    """Return the label that the user or what a partial run records gives it; "" for none."""
    recorded = RECORDED.get(factor or "")
    return partial.label or (recorded and recorded(partial.provenance)) or ""


def with_settings(partials: Sequence[PartialRun], factor: str | None) -> list[list[PartialRun]]:
    """Label the trials of one model and task by their setting.

    Labels are those of the user, else what `factor` names, by default a column, else the run.

    Parameters
    ----------
    partials : sequence of PartialRun
        In the order in which they are merged.
    factor : str or None
        One of :data:`FACTORS`; None or another name for the labels of a column.

    Returns
    -------
    list of list of PartialRun
        Those of every run; without labels where all are one run.
    """
    labelled = []
    for partial in partials:
        trials, label = partial.trials, _label(partial, factor)
        are_prompts = factor == "prompt" and any(q.prompt == SEVERAL for q in partial.questions)
        if label or (factor in FACTORS and not are_prompts):
            trials = replace(trials, setting=None)
        labelled.append(replace(partial, trials=trials.in_setting(label) if label else trials))
    runs = _runs(labelled, factor)
    columns = [p.trials.setting.tolist() for p in labelled if p.trials.setting is not None]
    if columns or (len(runs) > 1 and factor != "none"):
        given = {*chain(*columns)}
        for name, run in zip(_names([labelled[run[0]] for run in runs]), runs, strict=True):
            of_run = f"{name} (run)" if name in given else name
            for at in run:
                trials = labelled[at].trials.in_setting(of_run)
                labelled[at] = replace(labelled[at], trials=trials)
    return [[labelled[at] for at in run] for run in runs]


# -- runs ----------------------------------------------------------------------------------------


def _runs(partials: Sequence[PartialRun], factor: str | None) -> list[list[int]]:
    """Return the indices of the partial runs of every run, which is a setting.

    A run are files that share trials, or that go on with other trials or questions; of settings
    that are prompts, those with the same ones.
    """
    keys = [_keys(partial) for partial in partials]

    def is_one(i: int, j: int) -> bool:
        first, second = partials[i], partials[j]
        is_same_file = first.source == second.source
        return is_same_file or (not keys[i].isdisjoint(keys[j]) and overlap(first, second))

    def goes_on(i: int, j: int) -> bool:
        both = (partials[i], partials[j])
        if factor == "prompt":
            first, second = ({q.id: q.prompt for q in partial.questions} for partial in both)
            return all(first[id] == second[id] for id in first.keys() & second.keys())
        beside = len({Path(partial.source).parent for partial in both}) == 1
        may_go_on = all(p.trials.setting is None and not is_named(p.trials).any() for p in both)
        goes_on = beside and may_go_on and keys[i].isdisjoint(keys[j])
        return goes_on or both[0].ids.keys().isdisjoint(both[1].ids)

    runs: list[list[int]] = []
    for at in sorted(range(len(partials)), key=lambda at: partials[at].source):
        own = [run for run in runs if factor != "prompt" and any(is_one(i, at) for i in run)]
        own = own or [run for run in runs if all(goes_on(i, at) for i in run)][:1]
        runs = [*(run for run in runs if run not in own), sorted([*chain(*own), at])]
    return sorted(runs)


def _keys(partial: PartialRun) -> set[tuple[str, str, object]]:
    """Return the questions with the numbers of their trials, and with their seeds."""
    questions = [partial.questions[code].id for code in partial.trials.question]
    columns = {"number": partial.trials.number, "seed": partial.trials.seed}
    return {
        (id, kind, value)
        for kind, column in columns.items()
        if column is not None
        for id, value in zip(questions, column.tolist(), strict=True)
        if value is not None
    }


def _names(runs: Sequence[PartialRun]) -> list[str]:
    """Return the names of runs by the parts of their paths that differ."""
    paths = [str(run.folder or run.source) for run in runs]
    names = [Path(run.source).name.split(f"{run.task.replace('/', '__')}_")[-1] for run in runs]
    both = zip(paths, names, strict=True)
    paths = [path if paths.count(path) == 1 else f"{path}/{name}" for path, name in both]
    paths = paths if len({*paths}) == len(runs) else [run.source for run in runs]
    parts = distinct_parts(paths)
    stems = {path: _ENDINGS.sub("", part) for path, part in parts.items()}
    labels = stems if len({*stems.values()}) == len(runs) else parts
    return [labels[path] for path in paths]


def by_pass(trials: Trials) -> Trials:
    """Label trials by their pass over the questions: the place of their number in their run.

    Examples
    --------
    >>> by_pass(Trials.of_question([1, 0], [4, 9])).setting.tolist()
    ['trial 1', 'trial 2']
    """
    rows, numbers = identities(trials), dict[str | None, set[int]]()
    for _, number, run in rows:
        numbers.setdefault(run, set()).add(number)
    places = {run: {n: i for i, n in enumerate(sorted(of), 1)} for run, of in numbers.items()}
    passes = ((places[run][number], run) for _, number, run in rows)
    labels = [f"trial {place}" + (f" of {run}" if run else "") for place, run in passes]
    return replace(trials, setting=objects(labels))


# -- settings that repeat each other ---------------------------------------------------------------


def without_copies(trials: Trials) -> tuple[Trials, list[str]]:
    """Return settings whose texts agree as one, and a note; without texts none is a copy."""
    if trials.digest is None or trials.setting is None:
        return trials, []
    rows, texts = identities(trials), dict[str | None, Texts]()
    digests, kept = trials.digest.tolist(), list[str | None]()
    for (question, number, label), digest in zip(rows, digests, strict=True):
        texts.setdefault(label, {}).setdefault((question, number), set()).add(digest)
    copies: dict[str | None, str | None] = {}
    for label, own in texts.items():
        of = [first for first in kept if _are_copies(own, texts[first])]
        if of:
            copies[label] = of[0]
        else:
            kept.append(label)
    if not copies:
        return trials, []
    is_new = [
        label not in copies or digest not in texts[copies[label]].get((question, number), ())
        for (question, number, label), digest in zip(rows, digests, strict=True)
    ]
    setting = objects([copies.get(label, label) for *_, label in rows])
    listed = first_names([f"{label} (of {first})" for label, first in copies.items()], 8)
    note = f"copies among {len(texts):,} settings count once: {listed}"
    return replace(trials, setting=setting).take(np.array(is_new)), [note]


def _are_copies(texts: Texts, others: Texts) -> bool:
    both = [(texts[trial], others[trial]) for trial in texts.keys() & others.keys()]
    n_common = len({digest for own, other in both for digest in own & other})
    return n_common >= _COPIED and all(own <= other or other <= own for own, other in both)


def prompts_of(
    partials: Sequence[PartialRun], numbers: Mapping[str, int]
) -> dict[tuple[int, str | None], str]:
    """Return the hashes of prompts by the number of the question and the label of the setting.

    Where a question has several in one file, the label takes the place of the hash.
    """
    prompts = {}
    for partial in partials:
        column = partial.trials.setting
        labels = [None] if column is None else dict.fromkeys(column.tolist())
        for question, label in product(partial.questions, labels):
            prompt = label if question.prompt == SEVERAL else question.prompt
            prompts[numbers[question.id], label] = prompt or ""
    return prompts


def repeated_seeds(
    trials: Trials, prompts: Mapping[tuple[int, str | None], str], *, in_turn: bool
) -> list[int]:
    """Return the rows of trials without which no two settings have one of one seed and prompt.

    They repeat each other if their numbers or their texts are the same too: seeds are hashes of 31
    bits, and some agree by accident. What stays is of the first of the settings, or `in_turn` of
    another one for every question and for every seed of a question, as in a Latin square.
    """
    if trials.seed is None or trials.setting is None:
        return []
    repeated, turns = set[int](), Counter[int]()
    seeds, categories = trials.seed.tolist(), trials.category.tolist()
    rows, columns = identities(trials), (trials.number, trials.digest)
    for column in (column.tolist() for column in columns if column is not None):
        holders: dict[tuple[int, int, int, str | None], dict[str | None, list[int]]] = {}
        for row, (question, _, label) in enumerate(rows):
            if seeds[row] is None or categories[row] < 0 or row in repeated:
                continue
            key = question, column[row], seeds[row], prompts.get((question, label))
            holders.setdefault(key, {}).setdefault(label, []).append(row)
        for (question, *_), by_label in holders.items():
            if len(by_label) > 1:
                place = (question + turns[question]) % len(by_label) if in_turn else 0
                turns[question] += 1
                others = [of for at, of in enumerate(by_label.values()) if at != place]
                repeated.update(chain(*others))
    return sorted(repeated)
