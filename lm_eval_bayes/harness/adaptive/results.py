"""The results of a finished evaluation: its graded trials, and whether its files were written.

The harness only logs that a file could not be written, and goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_bayes._util.hashing import distinct_ids
from lm_eval_bayes.runs.task_run import TOKENS, TaskRun

if TYPE_CHECKING:
    from lm_eval_bayes.harness.task.prior_run import PriorTrials


def graded_task(
    task: str,
    samples: Sequence[Mapping[str, Any]],
    weights: Sequence[float],
    prior: PriorTrials | None,
) -> TaskRun:
    """Return the graded trials of one task.

    Parameters
    ----------
    task : str
        Its name.
    samples : sequence of mapping
        Its questions as the harness logs them: `doc_id`, `doc_hash`, `outcomes`, and where they
        are known `filter` and `signals`.
    weights : sequence of float
        The score of each category.
    prior : PriorTrials or None
        The prior trials that the outcomes get.
    """
    first_filter = samples[0].get("filter")
    rows = sorted(
        (row for row in samples if row.get("filter") == first_filter),
        key=lambda row: int(row["doc_id"]),
    )
    tokens = [(row.get("signals") or {}).get(TOKENS) for row in rows]
    measured = {}
    if None not in tokens:
        measured[TOKENS] = tuple(np.array(column, dtype=np.float64) for column in tokens)
    hashes = [str(row["doc_hash"]) for row in rows]
    run = TaskRun.from_trials(
        "",
        task,
        [row["outcomes"] for row in rows],
        distinct_ids(hashes),
        weights=weights,
        doc_ids=tuple(int(row["doc_id"]) for row in rows),
        measured=measured,
    )
    return run if prior is None else replace(run, outcomes=prior.inform(run.outcomes, hashes))


def missing_output(tracker: Any, logged: Mapping[str, int]) -> str | None:
    """Return the first output file of a finished run that is missing or incomplete.

    Parameters
    ----------
    tracker : EvaluationTracker
        The harness's tracker, after the run.
    logged : mapping of str to int
        The number of logged samples of each task; empty without --log_samples.

    Returns
    -------
    str or None
        The file's name; None if all files are complete, or there is no output path.
    """
    output = getattr(tracker, "output_path", None)
    if not output:
        return None
    path, stamp = Path(output), getattr(tracker, "date_id", None)
    if stamp is None:
        return "the results file"
    if path.suffix == ".json":
        folder, results = path.parent, path.with_name(f"{path.stem}_{stamp}.json")
    else:
        folder = path / str(tracker.general_config_tracker.model_name_sanitized)
        results = folder / f"results_{stamp}.json"
    if not _is_json(results):
        return results.name
    for task, n in logged.items():
        samples = folder / f"samples_{task}_{stamp}.jsonl"
        if _lines(samples) != n:
            return samples.name
    return None


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _lines(file: Path) -> int:
    """Count the lines; -1 for a file that cannot be read or whose last line is cut."""
    try:
        with file.open("rb") as content:
            ended = [line.endswith(b"\n") for line in content]
    except OSError:
        return -1
    return len(ended) if all(ended) else -1
