"""What lies at the path of a run, told by its content, and how each kind is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.partial_runs import Part
from lm_eval_bayes.runs.provenance import groups_of
from lm_eval_bayes.runs.readers.counts import counts_of_csv, counts_of_jsonl, is_counts_header
from lm_eval_bayes.runs.readers.csv_matrix import matrices_of_csv
from lm_eval_bayes.runs.readers.csv_rows import read_csv
from lm_eval_bayes.runs.readers.harness_log import Wanted, read_samples
from lm_eval_bayes.runs.readers.logged_rows import Advance, logged_rows
from lm_eval_bayes.runs.readers.npz_matrix import matrices_of_npz
from lm_eval_bayes.runs.readers.trial_store import read_store
from lm_eval_bayes.runs.saved_tasks import SavedTask, found_tasks, saved_task
from lm_eval_bayes.store.errors import NotAStoreError
from lm_eval_bayes.store.locations import is_store

#: What the outcomes in a file are called that names no task.
UNNAMED = "outcomes"

_RULE = (
    "be a run: a folder that the harness wrote into, a results_*.json or samples_*.jsonl file of "
    "it, a trial store, an outcome matrix (.csv, .npz) or a file of counts (.csv, .jsonl)"
)


class Source(Protocol):
    """Something that trials are read from."""

    @property
    def file(self) -> Path:
        """The file."""

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """The tasks of the groups that it tells of."""

    def read(self, wanted: Wanted, told: list[str], advance: Advance) -> list[Part]:
        """Read it; say what was left out, and how many bytes were read."""


@dataclass(frozen=True)
class SamplesSource:
    """The samples of one task of a run of the harness."""

    saved: SavedTask

    @property
    def file(self) -> Path:
        """The file of samples."""
        return self.saved.samples

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """The groups that the run was made of."""
        return groups_of(self.saved.results)

    def read(self, wanted: Wanted, told: list[str], advance: Advance) -> list[Part]:
        """Read the samples."""
        try:
            return [read_samples(self.saved, wanted, told, advance)]
        except RecursionError:
            rule = f"hold no values nested hundreds deep ({self.file.name})"
            raise InvalidInputError.of(wanted.argument, rule, "one") from None


@dataclass(frozen=True)
class FileSource:
    """A file of any other kind, with what reads it."""

    file: Path
    reader: Callable[[Path, Wanted, list[str], Advance], list[Part]]

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """There are none."""
        return {}

    def read(self, wanted: Wanted, told: list[str], advance: Advance) -> list[Part]:
        """Read the file; there is no right answer in it to grade anything again by."""
        if wanted.regrade is not None:
            rule = "be left out: only samples of the harness hold texts and right answers"
            raise InvalidInputError.of("regrade", rule, self.file.name)
        return self.reader(self.file, wanted, told, advance)


def sources_at(path: str | Path, argument: str) -> list[Source]:
    """Find what can be read at a path.

    Parameters
    ----------
    path : str or Path
        A folder or a file.
    argument : str
        What to call it in an error.

    Raises
    ------
    InvalidInputError
        If no run is there.
    """
    try:
        place = Path(path).expanduser()
        is_file, is_folder = place.is_file(), place.is_dir()
    except (OSError, ValueError, RuntimeError):
        is_file = is_folder = False
    if is_folder:
        return _of_harness(found_tasks(path, argument))
    if not is_file:
        raise InvalidInputError.of(argument, _RULE, str(path))
    if place.suffix == ".json":
        return _of_harness(found_tasks(path, argument))
    if place.suffix == ".jsonl":
        return [_of_lines(place, argument)]
    if place.suffix in (".csv", ".tsv"):
        return [FileSource(place, _read_csv)]
    if place.suffix == ".npz":
        return [FileSource(place, _read_npz)]
    try:
        # only SQLite opens the file of a store
        there = is_store(place.resolve())
    except NotAStoreError:
        there = False
    if not there:
        raise InvalidInputError.of(argument, _RULE, str(path))
    return [FileSource(place, read_store)]


def _of_harness(found: Iterable[SavedTask]) -> list[Source]:
    return [SamplesSource(one) for one in found]


def _of_lines(file: Path, argument: str) -> Source:
    """Tell samples from counts by the first line."""
    first = next(iter(logged_rows(file, argument, [])), None)
    if first is None:
        raise InvalidInputError.of(argument, f"hold samples or counts in {file.name}", "nothing")
    if "doc_id" in first and {"resps", "metrics", "outcomes", "filter"} & first.keys():
        return SamplesSource(saved_task(file, argument))
    if is_counts_header(list(first)):
        return FileSource(file, _read_counts)
    rule = f"hold samples of the harness, or counts with id, c and n, in {file.name}"
    raise InvalidInputError.of(argument, rule, f"a line with {', '.join(first) or 'nothing'}")


def _read_csv(file: Path, wanted: Wanted, told: list[str], advance: Advance) -> list[Part]:
    table = read_csv(file, wanted.argument, told)
    advance(file.stat().st_size)
    if is_counts_header(list(table.rows[0].cells)):
        return counts_of_csv(table, wanted.argument, wanted.task or UNNAMED, wanted.dedupe)
    return matrices_of_csv(table, wanted.argument, wanted.task or UNNAMED)


def _read_npz(file: Path, wanted: Wanted, told: list[str], advance: Advance) -> list[Part]:
    found = matrices_of_npz(file, wanted.argument, wanted.task or UNNAMED)
    advance(file.stat().st_size)
    return found


def _read_counts(file: Path, wanted: Wanted, told: list[str], advance: Advance) -> list[Part]:
    task = wanted.task or UNNAMED
    return counts_of_jsonl(file, wanted.argument, task, wanted.dedupe, told, advance)


def chosen(sources: Iterable[Source], task: str) -> Iterator[Source]:
    """Leave out samples of other tasks than the one, or the tasks of the group, of this name."""
    for one in sources:
        saved = one.saved if isinstance(one, SamplesSource) else None
        if saved is None or task == saved.task or saved.task in one.groups.get(task, ()):
            yield one
