"""Reports of SWE-bench and of benchmarks with its harness: of a run, or of each instance.

A run writes `<model>.<run>.json` with lists of instances, and
`logs/run_evaluation/<run>/<model>/<instance>/report.json`. Every run is one trial of its instances;
the runs of a model are merged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.text import error_line, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.provenance import mapping
from lm_eval_bayes.runs.readers.json_files import (
    beginning,
    broken,
    chosen_metric,
    load_json,
    name_of,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Found, Query
from lm_eval_bayes.runs.readers.trial_columns import TrialColumns, first_number, partial_runs

#: The task of the reports, which name none, unless the query does.
_TASK = "swe-bench"

#: Lists of instances that were not resolved, with what a note calls them.
_FAILED = {
    "unresolved_ids": "unresolved",
    "empty_patch_ids": "empty patch",
    "error_ids": "error",
    "failed_ids": "failed",
    "completed_ids": "unresolved",
    "submitted_ids": "no result",
}

#: The first keys of the report of a run, and the key of an instance in its own report.
_RUN = re.compile(rb'\s*\{\s*"(?:total|submitted|completed|resolved)_(?:instances|ids)"\s*:')
_INSTANCE = re.compile(rb'\s*\{\s*"[^"]+"\s*:\s*\{[^{}]*"(?:resolved|patch_exists)"\s*:')

#: Reports of runs are not larger, in bytes.
_LARGEST_REPORT = 2**24

#: The number at the end of the name of a run.
_NUMBERED = re.compile(r"(.*?)(\d{1,6})")


def units(files: Sequence[Path], path: Path) -> Found:
    """Return the reports of runs in a folder, and the folders of runs without one."""
    if not path.is_dir():
        return Found(files)
    runs = [file for file in files if file.name != "report.json"]
    reported = {_names(file) for file in runs}
    folders = sorted({_run_folder(file) for file in files if file.name == "report.json"})
    others = [folder for folder in folders if _names_of_folder(folder) not in reported]
    return Found([*runs, *others])


def is_mine(file: Path) -> bool:
    """Return whether a file is a report of a run or of an instance."""
    return file.suffix == ".json" and (_is_run_report(file) or _is_instance_report(file))


def _is_run_report(file: Path) -> bool:
    if _RUN.match(beginning(file)) is None:
        return False
    return b'"resolved_ids"' in beginning(file, _LARGEST_REPORT)


def _is_instance_report(file: Path) -> bool:
    return file.name == "report.json" and _INSTANCE.match(beginning(file)) is not None


def _run_folder(report: Path) -> Path:
    """Return the folder of a run and a model, of the report of an instance."""
    return report.absolute().parent.parent


def _names(file: Path) -> tuple[str, str]:
    """Return the model and the run of a report `<model>.<run>.json`; no run for other names."""
    model, _, run = file.stem.rpartition(".")
    if not model:
        named = file.stem not in ("report", "results")
        return (file.stem if named else file.absolute().parent.name), ""
    return model.replace("__", "/"), run


def _names_of_folder(folder: Path) -> tuple[str, str]:
    return folder.name.replace("__", "/"), folder.parent.name


def read(file: Path, query: Query) -> FileContents:
    """Read the report of a run, or those of all instances in a folder.

    Resolved instances are right. Those with errors, time-outs and empty patches are wrong, as in
    the rate of SWE-bench; those that were never submitted do not count.

    Raises
    ------
    InvalidInputError
        If a report is broken or contradicts itself.
    """
    metric, _ = chosen_metric(["resolved"], query, file, "metric")
    task = query.task or _TASK
    folder = file if file.is_dir() else _run_folder(file) if _is_instance_report(file) else None
    if folder is None:
        model, run = _names(file)
        outcomes, notes = _of_run(file, query)
    else:
        model, run = _names_of_folder(folder)
        try:
            instances = [file.absolute().parent] if file.is_file() else sorted(folder.iterdir())
        except OSError as error:
            raise broken(folder, query, error_line(error)) from None
        outcomes, notes = _of_instances(instances, query)
    ids = list(outcomes)
    numbered = _NUMBERED.fullmatch(run)
    run_name, number = (numbered[1], int(numbered[2])) if numbered else (run, 0)
    columns = TrialColumns(
        question=ids,
        score=[outcomes[id] for id in ids],
        model=model,
        task=task,
        trial=[first_number(run_name) + number] * len(ids) if run else None,
        cluster=[id.rpartition("-")[0] for id in ids] if query.cluster == "repo" else None,
    )
    first_label = 0 if numbered else 1
    runs = partial_runs(columns, file, query, metric=metric, notes=notes, first_label=first_label)
    return FileContents(runs, (task,))


def _of_run(file: Path, query: Query) -> tuple[dict[str, bool], tuple[str, ...]]:
    """Return whether every instance of a run was resolved, with notes."""
    content = load_json(file, query)
    if not isinstance(content, dict) or not isinstance(content.get("resolved_ids"), list):
        raise broken(file, query, "no list resolved_ids")
    resolved = _ids(content, "resolved_ids", file, query)
    failed: dict[str, str] = {}
    for key, kind in _FAILED.items():
        for id in _ids(content, key, file, query):
            if id in resolved and key in ("unresolved_ids", "empty_patch_ids", "error_ids"):
                rule = f"list every instance once ({file.name})"
                got = f"{id} resolved and {kind}"
                raise InvalidInputError.of(query.argument, "duplicate", rule, got)
            if id not in resolved:
                failed.setdefault(id, kind)
    outcomes = {**dict.fromkeys(resolved, True), **dict.fromkeys(failed, False)}
    _check_submitted(content, outcomes, file, query)
    left_out = _ids(content, "incomplete_ids", file, query).keys() - outcomes.keys()
    if not outcomes:
        raise InvalidInputError.of(query.argument, "empty", f"hold instances ({file.name})", "none")
    return dict(sorted(outcomes.items())), _notes(failed, len(left_out))


def _check_submitted(
    content: Mapping[str, Any], outcomes: Mapping[str, bool], file: Path, query: Query
) -> None:
    """Refuse a report whose lists hold other instances than those that the run submitted."""
    if content.get("submitted_ids") is not None:
        beyond = outcomes.keys() - _ids(content, "submitted_ids", file, query).keys()
        if beyond:
            rule = f"list instances of submitted_ids alone ({file.name})"
            raise InvalidInputError.of(query.argument, "mismatch", rule, min(beyond))
    n_submitted = content.get("submitted_instances")
    if type(n_submitted) is int and n_submitted != len(outcomes):
        rule = f"list the {plural(n_submitted, 'instance')} of submitted_instances ({file.name})"
        raise InvalidInputError.of(query.argument, "mismatch", rule, len(outcomes))


def _notes(failed: Mapping[str, str], n_left_out: int = 0) -> tuple[str, ...]:
    kinds = [kind for kind in failed.values() if kind != "unresolved"]
    counts = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    notes = []
    if counts:
        notes.append(
            f"{plural(len(kinds), 'trial')} without a graded patch counted as wrong, as in "
            f"SWE-bench's own rate ({', '.join(counts)})"
        )
    if n_left_out:
        notes.append(f"{plural(n_left_out, 'instance')} that the run did not submit left out")
    return tuple(notes)


def _ids(content: Mapping[str, Any], key: str, file: Path, query: Query) -> dict[str, None]:
    """Return a list of instances, without repetitions."""
    listed = content.get(key)
    ids = [name_of(id) for id in listed] if isinstance(listed, list) else []
    if "" in ids or not (listed is None or isinstance(listed, list)):
        raise broken(file, query, f"no list of names as {key}")
    return dict.fromkeys(ids)


def _of_instances(folders: list[Path], query: Query) -> tuple[dict[str, bool], tuple[str, ...]]:
    """Return whether instances were resolved, by the reports in their folders, with notes."""
    outcomes: dict[str, bool] = {}
    failed: dict[str, str] = {}
    for folder in folders:
        report = folder / "report.json"
        if not folder.is_dir():
            continue
        if not report.is_file():
            outcomes[folder.name], failed[folder.name] = False, "error"
            continue
        for id, instance in mapping(load_json(report, query)).items():
            resolved = mapping(instance).get("resolved")
            if not isinstance(resolved, bool):
                raise broken(report, query, f"no resolved of {id}")
            outcomes[name_of(id) or folder.name] = resolved
    if not outcomes:
        rule = f"hold instances ({folders[0].parent if folders else 'no folder'})"
        raise InvalidInputError.of(query.argument, "empty", rule, "none")
    return outcomes, _notes(failed)
