"""Sources of one model and task brought together, trial by trial, and models told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.deduplication import repeats, same_numbers_same_texts, united
from lm_eval_bayes.runs.model_names import distinct_names
from lm_eval_bayes.runs.partial_runs import Part, PartQuestion, as_run
from lm_eval_bayes.runs.task_run import TaskRun


@dataclass(frozen=True)
class Merging:
    """How sources are brought together.

    Attributes
    ----------
    dedupe : bool
        Whether a trial that stands twice counts once, or is refused.
    apart : bool
        Whether what was found at different paths stays apart.
    argument : str
        What to call a path in an error.
    told : list of str
        Gets what was left out.
    """

    dedupe: bool
    apart: bool
    argument: str
    told: list[str]


def merged_runs(parts: Sequence[Part], merging: Merging) -> list[TaskRun]:
    """Bring together what belongs together, and name the rest apart.

    Sources of one model and task are runs of the same thing if what makes the model another one
    is the same: its arguments, the generation settings, the chat template, …. In one folder the
    newest file counts; an older one whose trials it has is left out, and one that has others is
    added. Of sources elsewhere the trials are added. A trial that stands twice is refused
    unless `dedupe` is given.

    Returns
    -------
    list of TaskRun
        In the order of the parts.

    Raises
    ------
    InvalidInputError
        If a trial stands twice, or sources of one model do not fit together.
    """
    kept: list[Part] = []
    for alike in _alike(parts, merging.apart):
        for one_prompt in _by_prompts(_folders(alike, merging), merging):
            kept.append(_one(one_prompt, merging))
    names = distinct_names(kept, merging.told)
    return [as_run(part, name) for part, name in zip(kept, names, strict=True)]


def _alike(parts: Sequence[Part], apart: bool) -> list[list[Part]]:
    """Return the parts that are runs of the same thing, together."""
    found: dict[tuple[object, ...], list[list[Part]]] = {}
    for part in parts:
        together = found.setdefault((part.model, part.task, part.path if apart else 0), [])
        fitting = next((one for one in together if all(_same(part, p) for p in one)), None)
        if fitting is None:
            together.append([part])
        else:
            fitting.append(part)
    order = {id(part): i for i, part in enumerate(parts)}
    alike = [one for together in found.values() for one in together]
    return sorted(alike, key=lambda one: order[id(one[0])])


def _same(one: Part, other: Part) -> bool:
    """Return whether two parts of one name are of the same model, asked in the same way."""
    if bool(one.fingerprint) != bool(other.fingerprint):
        # A store knows the model in other words than the harness, and the stops of the engine.
        first, second = (
            {k: v for k, v in p.settings.items() if k != "until"} for p in (one, other)
        )
        return first == second
    alike = one.settings == other.settings
    return alike and (one.arguments, one.fingerprint) == (other.arguments, other.fingerprint)


# -- one folder ------------------------------------------------------------------------------------


def _folders(alike: Sequence[Part], merging: Merging) -> list[Part]:
    """Leave of every folder one part, made of the newest file and what older ones add."""
    places: dict[object, list[Part]] = {}
    for number, part in enumerate(alike):
        places.setdefault(number if part.place is None else part.place, []).append(part)
    return [_of_folder(sorted(here, key=_age), merging) for here in places.values()]


def _age(part: Part) -> tuple[str, int]:
    """Return what sorts files by their time, and a copy of a file before the file."""
    return part.stamp, -len(_file(part))


def _of_folder(parts: Sequence[Part], merging: Merging) -> Part:
    whole = parts[-1]
    for older in reversed(parts[:-1]):
        differs = _differs(older, whole) or _other_prompt(older, whole)
        if differs:
            merging.told.append(
                f"{_file(older)} was left out, for {_file(whole)} is newer and does not fit it: "
                f"{differs}"
            )
            continue
        if older.only_counts or whole.only_counts:
            merging.told.append(
                f"{_file(older)} was left out, for {_file(whole)} is newer, and where only counts "
                "are known it cannot be told which trials are the same"
            )
            continue
        known = _known(whole, older)
        if known == older.n_trials:
            note = f"{_file(older)} was left out: its trials are all in {_file(whole)}"
            whole = replace(whole, notes=(*whole.notes, note))
            continue
        if 0 < known < whole.n_trials and not merging.dedupe:
            raise _twice(whole, older, known, merging)
        note = f"the trials of {_file(older)} and {_file(whole)} were brought together"
        if known:
            note += f", {known:,} that stand in both once"
        whole = _sum(older, whole, prefer_second=known > 0)
        whole = replace(whole, notes=(*whole.notes, note))
    return whole


# -- several places --------------------------------------------------------------------------------


def _by_prompts(parts: Sequence[Part], merging: Merging) -> list[list[Part]]:
    """Keep apart what was asked in other words."""
    found: list[list[Part]] = []
    for part in parts:
        fitting = next((one for one in found if not _other_prompt(part, one[0])), None)
        if fitting is not None:
            fitting.append(part)
            continue
        if found:
            merging.told.append(
                f"{part.source} has other prompts than {found[0][0].source}: they are kept apart"
            )
        found.append([part])
    return found


def _one(parts: Sequence[Part], merging: Merging) -> Part:
    whole = parts[0]
    for part in parts[1:]:
        differs = _differs(part, whole)
        if differs:
            rule = f"have the same version, scores and metric of {part.task} for {part.model}"
            got = f"{differs} ({part.source}, unlike {whole.source})"
            raise InvalidInputError.of(merging.argument, rule, got)
        if part.only_counts or whole.only_counts:
            whole = _sum_of_counts(whole, part, merging)
            continue
        known = _known(whole, part)
        if known and not merging.dedupe:
            raise _twice(whole, part, known, merging)
        if known:
            told = f"{known:,} trials of {part.source} stand in {whole.source} too and count once"
            merging.told.append(told)
        whole = _sum(whole, part)
    return whole


def _sum_of_counts(first: Part, second: Part, merging: Merging) -> Part:
    """Counts cannot be told apart trial by trial, so only questions are added."""
    common = [id for id in first.questions if id in second.questions]
    if common:
        same = all(first.questions[id].counts == second.questions[id].counts for id in common)
        if not same or not merging.dedupe:
            rule = f"have the counts of {first.model} on {first.task} once"
            got = f"question {common[0]} in {first.source} and in {second.source}"
            raise InvalidInputError.of(merging.argument, rule, got)
    added = {id: one for id, one in second.questions.items() if id not in first.questions}
    sources = (*first.sources, *second.sources)
    return replace(first, questions={**first.questions, **added}, sources=sources)


def _twice(whole: Part, part: Part, known: int, merging: Merging) -> InvalidInputError:
    rule = (
        f"have every trial of {part.model} on {part.task} once (--dedupe counts it once): "
        f"{known:,} of {part.n_trials:,} trials of {part.source} are also in {whole.source}"
    )
    return InvalidInputError.of(merging.argument, rule, part.source)


def _file(part: Part) -> str:
    return Path(part.source).name


# -- trials ----------------------------------------------------------------------------------------


def _common(first: Part, second: Part) -> list[tuple[PartQuestion, PartQuestion]]:
    there = second.questions
    return [
        (one.graded(), there[id].graded()) for id, one in first.questions.items() if id in there
    ]


def _by_number(first: Part, second: Part) -> bool:
    """Return whether trials without a seed are the same where their numbers are."""
    greedy = not (first.sampled and second.sampled)
    return greedy or same_numbers_same_texts(_common(first, second))


def _known(whole: Part, part: Part) -> int:
    """Return how many trials of a part are in the whole."""
    by_number = _by_number(whole, part)
    return sum(int(repeats(one, more, by_number).sum()) for one, more in _common(whole, part))


def _sum(first: Part, second: Part, prefer_second: bool = False) -> Part:
    by_number = _by_number(first, second)
    questions: dict[str, PartQuestion] = {}
    for id in dict.fromkeys([*first.questions, *second.questions]):
        here = [part.questions[id] for part in (first, second) if id in part.questions]
        if prefer_second:
            here.reverse()
        questions[id] = united(id, here, by_number).question if len(here) > 1 else here[0]
    leading = second if prefer_second else first
    took = (first.made.seconds, second.made.seconds)
    seconds = None if None in took else sum(one for one in took if one is not None)
    notes = dict.fromkeys([*first.notes, *second.notes])
    made = replace(leading.made, seconds=seconds)
    sources = tuple(dict.fromkeys([*first.sources, *second.sources]))
    return replace(
        leading,
        sources=sources,
        questions=questions,
        made=made,
        notes=tuple(notes),
        signals_error=first.signals_error or second.signals_error,
        verifiers=_distinct([*first.verifiers, *second.verifiers]),
    )


def _distinct(verifiers: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(v for i, v in enumerate(verifiers) if v not in verifiers[:i])


# -- what must be the same -------------------------------------------------------------------------


def _differs(one: Part, other: Part) -> str:
    """Say in what a part cannot be added to another, "" if it can."""
    if one.version != other.version:
        return f"version {one.version or 'unknown'} of the task, not {other.version or 'unknown'}"
    if one.weights != other.weights:
        return "other scores of the categories"
    if (one.metric, one.filter) != (other.metric, other.filter):
        return "another metric or filter"
    return ""


def _other_prompt(one: Part, other: Part) -> str:
    differ = sum(
        bool(first.prompt and second.prompt and first.prompt != second.prompt)
        for first, second in _common(one, other)
    )
    return f"other prompts for {differ:,} questions" if differ else ""
