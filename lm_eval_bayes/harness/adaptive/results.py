"""Whether the files of a finished evaluation were written.

The harness only logs that a file could not be written, and goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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
