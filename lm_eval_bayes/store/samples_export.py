"""Export a store in the format of the harness's ``samples_*.jsonl``."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from lm_eval_bayes._util.files import Content, resolve_path, write_all_or_none
from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import format_date
from lm_eval_bayes.store.errors import StoreFileError, readable, translate_errors
from lm_eval_bayes.store.export import check_regular, export_errors, file_exists, json_line
from lm_eval_bayes.store.file import StoreFile, check_structure, open_file
from lm_eval_bayes.store.outcomes import OutcomeRow, outcome_rows
from lm_eval_bayes.store.questions import ClusterRow, Question, cluster_rows
from lm_eval_bayes.store.tables import DescriptionRow, key_trials, prompt_signals_rows
from lm_eval_bayes.store.trial import MEASUREMENTS, Trial, TrialKey

#: The fields of a trial among its signals in a log of samples, before the trial's own signals.
MEASURED = ("trial", *(name for name in MEASUREMENTS if name not in ("created", "signals")))


@dataclass(frozen=True)
class SamplesFile(Record):
    """One file of samples.

    Attributes
    ----------
    path : str
        The file.
    model, sampling : str
        Hashes of the model and the sampling of its trials.
    task, version : str or None
        The task that graded them; None if none did.
    lines, trials : int
        Number of lines, and of trials in all of them.
    """

    path: str
    model: str
    sampling: str
    task: str | None
    version: str | None
    lines: int
    trials: int


@dataclass(frozen=True)
class SamplesReport(Record):
    """What an export of samples wrote.

    Attributes
    ----------
    folder : str
        The folder of the files.
    files : tuple of SamplesFile
        The files.
    damaged : int
        Exported records that do not match their stored hash, see
        :func:`~lm_eval_bayes.store.verify.verify`.
    """

    folder: str
    files: tuple[SamplesFile, ...]
    damaged: int


def export_samples(
    store: str | PathLike[str],
    folder: str | PathLike[str],
    overwrite: bool = False,
    name_model: Callable[[Mapping[str, Any]], str] | None = None,
) -> SamplesReport:
    """Write the trials of a store in the format of the harness's ``samples_*.jsonl``.

    There is one file for each model, sampling and version of a task that graded their trials,
    and one for each model and sampling with the prompts that no task graded. A line is one prompt
    with all its trials by number in ``resps`` and what was measured in ``signals``. If it was
    graded, it has the doc_id, doc_hash, filter, outcomes, answers and cluster of its run, with null
    for each trial that was not graded. A store contains prompts and raw texts only, so ``doc`` has
    the prompt alone, ``target`` and ``metrics`` are empty, and a text is not cut at stop strings.
    There is no results file beside, so a line also has its task and its model as ``task_name`` and
    ``model_name``, which this package reads.

    Parameters
    ----------
    store : path or TrialStore
        The store.
    folder : path
        The folder of the files, created if it is missing. The names of the files consist of hashes
        and the date of the last trial. They appear when all are complete.
    overwrite : bool
        Whether existing files are replaced.
    name_model : callable, optional
        Returns the name of a model with some fingerprint; without it lines have no ``model_name``.

    Raises
    ------
    StoreError
        If the store cannot be read or a file cannot be written; nothing is left behind.
    """
    target = resolve_path(folder)
    files: list[SamplesFile] = []
    damaged: set[tuple[object, ...]] = set()
    with closing(open_file(store, "read")) as file:
        if target.exists() and not target.is_dir():
            raise StoreFileError(
                f"{target} is no folder, and samples are written into one", "path", "folder", target
            )
        if not target.parent.is_dir():
            sentence = f"{target} cannot be written: there is no folder {target.parent}"
            raise StoreFileError(sentence, "path", "folder", target)

        def contents() -> Generator[tuple[Path, Content], None, None]:
            # The transaction ends, and is checked, before the first file gets its name.
            with file.reading() as connection:
                check_structure(connection, file.path)
                for series in _all_series(connection, file, damaged, name_model):
                    path = target / _file_name(series)
                    check_regular(path)
                    if path.exists() and not overwrite:
                        raise file_exists(path)
                    yield path, partial(_write_series, series, path, files)

        with (
            export_errors(target),
            translate_errors(file.path, "read"),
            readable(file.path, "a line to be exported"),
            closing(contents()) as pairs,
        ):
            write_all_or_none(pairs, overwrite)
    return SamplesReport(str(target), tuple(files), len(damaged))


@dataclass(frozen=True)
class _Series:
    """The content of one file: trials of one model and sampling, graded by one task or by none.

    `last` is the time of the last trial of this model and sampling, in seconds since 1970 UTC;
    `names` has the task and the model of every line.
    """

    model: str
    sampling: str
    task: tuple[str, str] | None
    last: float
    names: Mapping[str, str]
    lines: Iterator[dict[str, Any]]


def _write_series(series: _Series, path: Path, files: list[SamplesFile], output: BinaryIO) -> None:
    """Write the lines of a file, and append what it contains to `files`."""
    lines = trials = 0
    for line in series.lines:
        lines += 1
        trials += len(line["resps"][0])
        output.write(json_line({**line, **series.names}).encode("ascii"))
    task, version = series.task or (None, None)
    files.append(
        SamplesFile(str(path), series.model, series.sampling, task, version, lines, trials)
    )


def _file_name(series: _Series) -> str:
    """Return a name in the harness's form, ``samples_<task>_<date>.jsonl``."""
    parts = [digest.rpartition(":")[2][:16] for digest in (series.model, series.sampling)]
    if series.task is not None:
        parts.append(sha256_text("\0".join(series.task))[:16])
    # Letters and digits only: in a damaged store, a hash can be any text, a path included.
    name = "-".join("".join(c for c in part if c.isalnum()) for part in parts)
    form = "%Y-%m-%dT%H-%M-%S.%f"
    # A date that no calendar has is that of the epoch.
    return f"samples_{name}_{format_date(series.last, form) or format_date(0.0, form)}.jsonl"


def _all_series(
    connection: sqlite3.Connection,
    file: StoreFile,
    damaged: set[tuple[object, ...]],
    name_model: Callable[[Mapping[str, Any]], str] | None,
) -> Iterator[_Series]:
    """Split a store into the contents of its files of samples.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction that reads.
    file : StoreFile
        The store.
    damaged : set
        As lines are read, an entry is added for every record that does not match its hash.
    name_model : callable or None
        Returns the name of a model with some fingerprint.

    Raises
    ------
    TypeError, ValueError, LookupError
        If a row is damaged.
    """
    pairs = connection.execute(
        "SELECT m.hash, s.hash, model, sampling, max(created), m.description, s.description "
        "FROM trials JOIN models AS m ON m.id = model JOIN samplings AS s ON s.id = sampling "
        "GROUP BY model, sampling ORDER BY 1, 2"
    ).fetchall()
    for model, sampling, *ids, last, fingerprint, description in pairs:
        if not DescriptionRow("samplings", ids[1], sampling, description).is_intact():
            damaged.add(("sampling", sampling))
        kwargs = generation_kwargs(json.loads(description))
        reader = _LineReader(connection, file, (model, sampling), ids, kwargs, damaged)
        graded = reader.graded_prompts()
        names = {} if name_model is None else {"model_name": name_model(json.loads(fingerprint))}
        for task, prompts in sorted(graded.items()):
            lines = starmap(reader.line, prompts)
            yield _Series(model, sampling, task, last, {"task_name": task[0], **names}, lines)
        with_outcomes = {digest for prompts in graded.values() for _, digest, _ in prompts}
        ungraded = [digest for digest in reader.prompt_ids if digest not in with_outcomes]
        if ungraded:
            lines = starmap(reader.line, enumerate(ungraded))
            yield _Series(model, sampling, None, last, names, lines)


@dataclass
class _LineReader:
    """Reads the trials of one model and sampling as lines of samples."""

    connection: sqlite3.Connection
    file: StoreFile
    hashes: tuple[str, str]
    ids: Sequence[int]
    kwargs: Mapping[str, Any]
    damaged: set[tuple[object, ...]]

    def __post_init__(self) -> None:
        self.clusters: dict[Question, ClusterRow] = {
            row.question: row for row in cluster_rows(self.connection)
        }
        # By id, which is the order in which they were described and that of the task's data.
        self.prompt_ids: dict[str, int] = dict(
            self.connection.execute(
                "SELECT p.hash, prompt FROM (SELECT DISTINCT prompt FROM trials "
                "WHERE model = ? AND sampling = ?) JOIN prompts AS p ON p.id = prompt "
                "ORDER BY prompt",
                tuple(self.ids),
            ).fetchall()
        )

    def graded_prompts(self) -> dict[tuple[str, str], list[tuple[int, str, int]]]:
        """Return the doc_id, hash and question of the graded prompts, by task and version.

        The question is its id, with which :meth:`line` reads the outcomes.
        """
        found = self.connection.execute(
            "SELECT q.task, q.version, q.doc_id, p.hash, q.id FROM "
            "(SELECT DISTINCT question, prompt FROM outcomes WHERE model = ? AND sampling = ?) "
            "JOIN questions AS q ON q.id = question JOIN prompts AS p ON p.id = prompt "
            "ORDER BY q.task, q.version, q.filter, q.categories, q.doc_id, q.doc_hash, p.hash",
            tuple(self.ids),
        )
        tasks: dict[tuple[str, str], list[tuple[int, str, int]]] = {}
        for task, version, doc_id, digest, question_id in found:
            if digest in self.prompt_ids:
                tasks.setdefault((task, version), []).append((doc_id, digest, question_id))
        return tasks

    def _outcomes(self, question_id: int, prompt_id: int) -> list[OutcomeRow]:
        where = "WHERE o.question = ? AND o.model = ? AND o.sampling = ? AND o.prompt = ?"
        values = (question_id, *self.ids, prompt_id)
        rows = list(outcome_rows(self.connection, where, values))
        for row in rows:
            if not row.is_intact():
                self.damaged.add(("outcome", *row.question, row.key, row.trial))
        return rows

    def line(self, doc_id: int, digest: str, question_id: int | None = None) -> dict[str, Any]:
        """Return the line of one prompt, with the outcomes of one question if it was graded."""
        prompt_id = self.prompt_ids[digest]
        outcomes = [] if question_id is None else self._outcomes(question_id, prompt_id)
        key = TrialKey(model=self.hashes[0], prompt=digest, sampling=self.hashes[1])
        trials = []
        ids = (*self.ids, prompt_id)
        for trial, intact in key_trials(self.connection, self.file.texts, key, ids):
            trials.append(trial)
            if not intact:
                self.damaged.add(("trial", key, trial.trial))
        texts = [trial.text for trial in trials]
        text = self._prompt_text(digest, prompt_id)
        doc = {"prompt": text}
        filter_name, doc_hash = "none", sha256_text(json.dumps(doc, indent=2, ensure_ascii=False))
        if outcomes:
            _, _, filter_name, _, _, doc_hash = outcomes[0].question
        line = {
            "doc_id": doc_id,
            "doc": doc,
            "target": "",
            "arguments": {"gen_args_0": {"arg_0": text, "arg_1": self.kwargs}},
            "resps": [texts],
            "filtered_resps": [texts],
            "filter": filter_name,
            "metrics": [],
            "doc_hash": doc_hash,
            "prompt_hash": sha256_text(text),
            "target_hash": sha256_text(""),
        }
        if outcomes:
            line |= _outcome_fields(outcomes, trials)
            cluster = self.clusters.get(outcomes[0].question)
            if cluster is not None:
                if not cluster.is_intact():
                    self.damaged.add(("cluster", *cluster.question))
                line["cluster"] = cluster.cluster().label
        own = self._prompt_signals(prompt_id)
        measured = [
            {name: getattr(trial, name) for name in MEASURED} | dict(trial.signals or {}) | own
            for trial in trials
        ]
        names = dict.fromkeys(name for signals in measured for name in signals)
        line["lengths"] = [len(text) for text in texts]
        line["signals"] = {name: [signals.get(name) for signals in measured] for name in names}
        return line

    def _prompt_text(self, digest: str, prompt_id: int) -> str:
        statement = "SELECT description FROM prompts WHERE id = ?"
        (text,) = self.connection.execute(statement, (prompt_id,)).fetchone()
        if not DescriptionRow("prompts", prompt_id, digest, text).is_intact():
            self.damaged.add(("prompt", digest))
        return str(text, "utf-8", "surrogatepass")

    def _prompt_signals(self, prompt_id: int) -> dict[str, Any]:
        where, ids = "WHERE g.model = ? AND g.prompt = ?", (self.ids[0], prompt_id)
        for row in prompt_signals_rows(self.connection, where, ids):
            if not row.is_intact():
                self.damaged.add(("prompt_signals", row.model, row.prompt))
            return dict(json.loads(row.signals))
        return {}


def _outcome_fields(outcomes: Sequence[OutcomeRow], trials: Sequence[Trial]) -> dict[str, Any]:
    by_number = {row.trial: row.graded_trial() for row in outcomes}
    graded = [by_number.get(trial.trial) for trial in trials]
    notes = {
        str(i): trial.error for i, trial in enumerate(graded) if trial and trial.error is not None
    }
    fields: dict[str, Any] = {
        "outcomes": [trial and trial.outcome for trial in graded],
        "answers": [trial and trial.answer for trial in graded],
    }
    return {**fields, "grading_error_notes": notes} if notes else fields


def generation_kwargs(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return generation settings under the names that the harness gives them.

    The stop strings of a store are those that the engine received.

    Examples
    --------
    >>> generation_kwargs({"temperature": 0.6, "max_gen_toks": 9, "stops": ["Q:"]})
    {'temperature': 0.6, 'max_gen_toks': 9, 'until': ['Q:'], 'do_sample': True}
    """
    kwargs = {name: value for name, value in sampling.items() if name != "stops"}
    if "stops" in sampling:
        kwargs["until"] = sampling["stops"]
    if "temperature" in sampling:
        kwargs["do_sample"] = sampling["temperature"] != 0
    return kwargs
