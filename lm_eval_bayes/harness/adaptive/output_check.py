"""Whether the harness has written what it should: it only logs a failure, and goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BLOCK = 1 << 20


def not_written(tracker: Any, logged: Mapping[str, int]) -> str | None:
    """Say what is missing of a finished run's files.

    Parameters
    ----------
    tracker : EvaluationTracker
        The harness's, after the run.
    logged : mapping of str to int
        How many lines of samples each task has; empty if samples were not asked for.

    Returns
    -------
    str or None
        The name of the first file that is missing or not whole; None if all is there, or
        nothing was to be written.
    """
    output = getattr(tracker, "output_path", None)
    if not output:
        return None
    place, stamp = Path(output), getattr(tracker, "date_id", None)
    if stamp is None:
        return "the results file"
    if place.suffix == ".json":
        folder, results = place.parent, place.with_name(f"{place.stem}_{stamp}.json")
    else:
        folder = place / str(tracker.general_config_tracker.model_name_sanitized)
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
    """Count the whole lines; a file that cannot be read or ends in mid-line has none."""
    n, last = 0, b""
    try:
        with file.open("rb") as content:
            while block := content.read(_BLOCK):
                n += block.count(b"\n")
                last = block[-1:]
    except OSError:
        return -1
    return n if last in (b"", b"\n") else -1
