"""Reports of the runs of SWE-bench and of benchmarks with its harness.

A run writes `<model>.<run>.json` with lists of instances; submissions to SWE-bench/experiments
have a `results.json` of other lists. Every run is one trial of its instances; the runs of a model
are merged. Resolved instances are right; those with errors, time-outs and empty patches are wrong,
as in the rate of SWE-bench; those that were never submitted do not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import mapping
from lm_eval_bayes.runs.readers.json_files import beginning, broken, load_json, name_of
from lm_eval_bayes.runs.readers.protocol import FileContents, Query
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.tool_log import ToolLog, Trial

#: Lists of instances, with what kept them from being graded: the first list of an instance counts.
_RESOLVED = ("resolved_ids", "resolved")
_LISTS = {
    **dict.fromkeys((*_RESOLVED, "unresolved_ids"), ""),
    "empty_patch_ids": "an empty patch",
    "no_generation": "no generation",
    **dict.fromkeys(("error_ids", "failed_ids", "no_logs"), "an error"),
    **dict.fromkeys(("completed_ids", "generated"), ""),
    "submitted_ids": "no result",
}

#: Lists of instances that are not resolved, and those of which one has to be there.
_FAILED = ("unresolved_ids", "empty_patch_ids", "error_ids")
_ALL = ("submitted_ids", "completed_ids", "unresolved_ids", "generated")

#: The first keys of a report.
_RUN = re.compile(
    rb'\s*\{\s*"((?:total|submitted|completed|resolved)_(?:instances|ids)"\s*:'
    rb'|(?:no_generation|no_logs|generated|resolved)"\s*:\s*\[)'
)

#: The number at the end of the name of a run.
_NUMBERED = re.compile(r"(.*?)(\d{1,6})")


def is_mine(file: LogFile) -> bool:
    """Return whether a file is a report of a run."""
    if file.path.suffix != ".json" or not _RUN.match(file.beginning):
        return False
    content = beginning(file.path, 2**24)  # reports are not larger
    return any(f'"{key}"'.encode() in content for key in _RESOLVED)


def _model_and_run(path: Path) -> tuple[str, str]:
    """Return the model and the run of a report."""
    model, _, run = path.stem.rpartition(".")
    if model:
        return model.replace("__", "/"), run
    names = [path.stem, *(parent.name for parent in path.absolute().parents)]
    return next(name for name in names if name not in ("report", "results")), ""


def read(file: Path, query: Query) -> FileContents:
    """Read the report of a run.

    Raises
    ------
    InvalidInputError
        If a report is broken, contradicts itself, or does not list all instances.
    """
    model, run = _model_and_run(file)
    numbered, notes = _NUMBERED.fullmatch(run), list[str]()
    content = mapping(load_json(file))
    outcomes = _of_run(content, file)
    if left_out := set(_ids(content, "incomplete_ids", file)) - outcomes.keys():
        n = plural(len(left_out), "instance")
        notes = [f"{file.name}: {n} that the run did not submit left out"]
    trials = [
        Trial(
            model=model,
            task=query.task or "swe-bench",
            question=id,
            key=id,
            run=numbered[1] if numbered else run,
            label=int(numbered[2]) if numbered else None,
            scores={"resolved": resolved},
            error=error,
            document={"repo": id.rpartition("-")[0]},
        )
        for id, (resolved, error) in outcomes.items()
    ]
    log = ToolLog(file, query, records=lambda query: trials)
    log.texts = None
    return replace(log.contents("SWE-bench"), notes=tuple(notes))


def _of_run(content: Mapping[str, Any], file: Path) -> dict[str, tuple[bool, str]]:
    """Return whether every instance of a run was resolved, and what kept it from being graded."""
    outcomes: dict[str, tuple[bool, str]] = {}
    for key, error in _LISTS.items():
        for id in _ids(content, key, file):
            is_resolved, _ = outcomes.setdefault(id, (key in _RESOLVED, error))
            if is_resolved and key in _FAILED:
                rule = f"list no instance as resolved and in {key} ({file.name})"
                raise InvalidInputError.of("RUN", "duplicate", rule, id)
    listed = {key for key in _ALL if isinstance(content.get(key), list)}
    sizes = [content.get("submitted_instances")]
    sizes += [len(_ids(content, key, file)) for key in listed & {"submitted_ids"}]
    for n in sizes:
        if type(n) is int and n != len(outcomes):
            rule = f"list the {plural(n, 'instance')} that were submitted ({file.name})"
            raise InvalidInputError.of("RUN", "mismatch", rule, len(outcomes))
    if not listed and type(sizes[0]) is not int:
        rule = f"list all instances, those that were not resolved too, as {_ALL[-1]} ({file.name})"
        raise InvalidInputError.of("RUN", "missing", rule, "resolved ones, and no total")
    return dict(sorted(outcomes.items()))


def _ids(content: Mapping[str, Any], key: str, file: Path) -> list[str]:
    listed = content.get(key)
    ids = [name_of(id) for id in listed] if isinstance(listed, list) else []
    if "" in ids or not (listed is None or isinstance(listed, list)):
        raise broken(file, f"no list of names as {key}")
    if len(set(ids)) < len(ids):
        rule = f"list every instance once as {key} ({file.name})"
        raise InvalidInputError.of("RUN", "duplicate", rule, Counter(ids).most_common(1)[0][0])
    return ids
