"""Write a store as the harness's own logs of samples, for tools that read those."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import publish, sync_folder, temporary_name
from lm_eval_bayes.store.errors import StoreFileError, readable
from lm_eval_bayes.store.export import dumps, refuse_special
from lm_eval_bayes.store.file import open_file
from lm_eval_bayes.store.locations import locate
from lm_eval_bayes.store.samples_lines import Series, series_of, sha256
from lm_eval_bayes.store.trial_store import TrialStore


@dataclass(frozen=True)
class SamplesFile:
    """One file of samples.

    Attributes
    ----------
    path : str
        The file.
    model, sampling : str
        Hashes of the model and the sampling whose trials it holds.
    task, version : str or None
        The task that graded them; None where none did.
    lines, trials : int
        Lines, and trials on all of them.
    """

    path: str
    model: str
    sampling: str
    task: str | None
    version: str | None
    lines: int
    trials: int


@dataclass(frozen=True)
class SamplesReport:
    """What an export of samples wrote.

    Attributes
    ----------
    folder : str
        Where the files are.
    files : tuple of SamplesFile
        The files.
    damaged : int
        Trials, outcomes and whatever else was exported that are not what was written to the
        store, see :func:`~lm_eval_bayes.store.verify.verify`.
    """

    folder: str
    files: tuple[SamplesFile, ...]
    damaged: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        files = [asdict(file) for file in self.files]
        return {"folder": self.folder, "files": files, "damaged": self.damaged}


#: Under which name a file lies first, and what it is.
_Finished = tuple[Path, SamplesFile]


def export_samples(
    store: TrialStore | str | PathLike[str], folder: str | PathLike[str], overwrite: bool = False
) -> SamplesReport:
    """Write the trials of a store in the format of the harness's ``samples_*.jsonl``.

    There is one file for each model and sampling; where tasks graded these trials, one for each
    version of a task, and one more for prompts that none graded. A line is one prompt with all
    its trials by number in ``resps`` and what was measured in ``signals``. Graded, it has the
    doc_id, doc_hash, filter, outcomes and answers of its run; null stands for a trial that was
    not graded. A store keeps prompts and raw texts, so ``doc`` holds the prompt alone, ``target``
    and ``metrics`` are empty, and a text is what the model wrote before anything was cut off.

    Parameters
    ----------
    store : TrialStore or path
        Where from.
    folder : path
        Where to; it is made if need be, and goes again if the export fails. The files' names are
        made of hashes and the date of the last trial, and they appear when all are complete.
    overwrite : bool
        Whether files that are there may be replaced.

    Raises
    ------
    StoreError
        If the store cannot be read or a file not be written.
    """
    target = locate(folder)
    source = store.path if isinstance(store, TrialStore) else store
    with closing(open_file(source, "read")) as file:
        if target.exists() and not target.is_dir():
            raise StoreFileError(f"{target} is no folder, and samples are written into one")
        finished: list[_Finished] = []
        damaged: set[tuple[object, ...]] = set()
        try:
            with _folder(target, finished):
                with file.reading() as connection, readable(file.path, "a line to be exported"):
                    for series in series_of(connection, file.schema, damaged):
                        finished.append(_written(series, target))
                _publish(finished, overwrite)
        except StoreFileError:
            raise
        except OSError as error:
            raise StoreFileError(f"{target} cannot be written: {error.strerror}") from error
    return SamplesReport(str(target), tuple(entry for _, entry in finished), len(damaged))


@contextmanager
def _folder(path: Path, finished: Sequence[_Finished]) -> Iterator[None]:
    """Make the folder if need be, and tidy up; one that we made is left only with files in it."""
    try:
        path.mkdir()
        made = True
    except FileExistsError:
        made = False
    try:
        yield
    except BaseException:
        _remove(finished)
        if made:
            with suppress(OSError):
                path.rmdir()
        raise
    _remove(finished)


def _remove(finished: Sequence[_Finished]) -> None:
    for temporary, _ in finished:
        with suppress(OSError):
            temporary.unlink()


def _written(series: Series, folder: Path) -> _Finished:
    path = folder / _name(series)
    temporary = temporary_name(path)
    lines = trials = 0
    try:
        with open(temporary, "x", encoding="ascii", newline="\n") as output:
            for line in series.lines:
                lines += 1
                trials += len(line["resps"][0])
                output.write(dumps(line) + "\n")
            output.flush()
            os.fsync(output.fileno())
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    task, version = series.task or (None, None)
    counted = SamplesFile(str(path), series.model, series.sampling, task, version, lines, trials)
    return temporary, counted


def _name(series: Series) -> str:
    """Return a name in the harness's form, ``samples_<task>_<date>.jsonl``."""
    parts = [digest.rpartition(":")[2][:16] for digest in (series.model, series.sampling)]
    if series.task is not None:
        parts.append(sha256("\0".join(series.task))[:16])
    # Nothing of it but the hashes' digits: what a damaged store calls a hash may be a path.
    word = "-".join("".join(c for c in part if c.isalnum()) for part in parts)
    try:
        date = datetime.datetime.fromtimestamp(series.last, datetime.timezone.utc)
    except (OverflowError, OSError, ValueError):
        date = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
    text = date.replace(tzinfo=None).isoformat(timespec="microseconds").replace(":", "-")
    return f"samples_{word}_{text}.jsonl"


def _publish(finished: Sequence[_Finished], overwrite: bool) -> None:
    for _, entry in finished:
        refuse_special(entry.path)
    there = [entry.path for _, entry in finished if Path(entry.path).exists()]
    if there and not overwrite:
        raise StoreFileError(f"{there[0]} exists already; nothing was exported")
    for temporary, entry in finished:
        path = Path(entry.path)
        if overwrite:
            os.replace(temporary, path)
        elif not publish(temporary, path):
            raise StoreFileError(f"{path} was made by another process meanwhile and is kept")
    if finished:
        sync_folder(Path(finished[0][1].path).parent)
