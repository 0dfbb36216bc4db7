"""The table of formats, and which of them a path has.

A format is a module of this folder and an entry of :data:`READERS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.readers import counts, harness_log, trial_store, zero_one_matrix
from lm_eval_bayes.runs.readers.protocol import Reader, Sniffed
from lm_eval_bayes.runs.readers.text_files import JsonLines

#: The readers of all formats; the first that recognises a path reads it.
READERS: tuple[Reader, ...] = (harness_log, counts, zero_one_matrix, trial_store)

_RULE = (
    "be a run: a folder that the harness wrote into, a results_*.json or samples_*.jsonl file of "
    "it, a trial store, an outcome matrix (.csv, .npz) or a file of counts (.csv, .jsonl)"
)


@dataclass(frozen=True)
class RunFile:
    """A file with its reader.

    Attributes
    ----------
    file : Path
        The file.
    reader : Reader
        Reads it.
    path : str
        The path that it was found at, a file or a folder.
    number : int
        The index of that path.
    """

    file: Path
    reader: Reader
    path: str
    number: int


def files_at(
    paths: Sequence[str | Path], argument: str, *, merge: bool
) -> tuple[list[RunFile], list[str]]:
    """Return the files at the paths with their readers, and warnings.

    Parameters
    ----------
    paths : sequence of str or Path
        Files and folders.
    argument : str
        The name of a path in an error.
    merge : bool
        Whether a file at several paths is read once, not once for each.

    Raises
    ------
    InvalidInputError
        If a path holds no run.
    """
    files: dict[tuple[int, Path], RunFile] = {}
    warnings: list[str] = []
    for number, path in enumerate(paths):
        reader, sniffed = _sniff(path, argument)
        warnings += sniffed.warnings
        for file in sniffed.files:
            key = (0 if merge else number, file.resolve())
            files.setdefault(key, RunFile(file, reader, str(path), number))
    if not files:
        raise InvalidInputError.of(argument, "name at least one run", "none")
    return list(files.values()), warnings


def _sniff(path: str | Path, argument: str) -> tuple[Reader, Sniffed]:
    try:
        expanded = Path(path).expanduser()
        exists = expanded.is_file() or expanded.is_dir()
    except (OSError, ValueError, RuntimeError):
        exists = False
    if not exists:
        raise InvalidInputError.of(argument, _RULE, str(path))
    for reader in READERS:
        sniffed = reader.sniff(expanded)
        if sniffed is not None:
            return reader, sniffed
    rule, got = _RULE, str(path)
    if expanded.is_dir() or expanded.suffix == ".json":
        rule = (
            "be a run's output folder, or one of its results_*.json or samples_*.jsonl files, "
            "with logged samples (--log_samples)"
        )
    elif expanded.suffix == ".jsonl":
        first = next(iter(JsonLines(expanded, argument)), None)
        rule = f"hold samples of the harness, or counts with id, c and n, in {expanded.name}"
        got = "nothing" if first is None else f"a line with {', '.join(first) or 'nothing'}"
    raise InvalidInputError.of(argument, rule, got)
