"""The trials of runs that a verifier judges, and the file that its verdicts are added to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO, Any

from lm_eval_bayes._util.files import plain_name, write_atomic
from lm_eval_bayes._util.hashing import canonical_json
from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.verifier_prompt import VerifierInput
from lm_eval_bayes.runs.logged_texts import PER_RECORD, LoggedTexts
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.runs.verdicts import (
    TEXTS,
    TrialVerdict,
    Verdicts,
    VerdictsError,
    VerdictsHeader,
    case_hash,
    file_errors,
    lacking,
    read_verdicts,
    verdicts_path,
    verifier_inputs,
)


@dataclass(frozen=True)
class TrialCase:
    """One trial, as it is judged; its texts are read on demand.

    Attributes
    ----------
    doc_id, trial : int
        The number of the question in its task, and the index of the text among the responses of
        its line in the samples file, both from 0.
    text : str
        The hash of the case.
    read : callable
        Returns the case.
    """

    doc_id: int
    trial: int
    text: str
    read: Callable[[], VerifierInput] = field(compare=False, repr=False)


@dataclass(frozen=True)
class JudgedFile:
    """The trials of a run that one samples file holds.

    Attributes
    ----------
    model, task : str
        The run.
    samples : Path
        The samples file.
    trials : tuple of TrialCase
        Its trials, question by question.
    target : Path
        The file of verdicts.
    """

    model: str
    task: str
    samples: Path
    trials: tuple[TrialCase, ...]
    target: Path


def files_to_judge(runs: Sequence[TaskRun], limit: int | None = None) -> list[JudgedFile]:
    """Return the trials of runs, one samples file after the other.

    Texts are read to be hashed, and again when they are judged; those of one line are held in
    memory. Verdicts are kept per samples file, so a run that was merged from several is judged
    in parts.

    Parameters
    ----------
    runs : sequence of TaskRun
        The runs.
    limit : int or None
        Only so many questions of each run, the first ones.

    Raises
    ------
    InvalidInputError
        If a run has no generated texts, no question or no standard answer.
    """
    files = []
    for run in runs:
        by_file: dict[str, list[TrialCase]] = {}
        if run.texts is None:
            raise lacking(TEXTS, ", ".join(run.sources) or run.model)
        for number, texts in enumerate(run.texts[:limit]):
            doc_id = number if run.doc_ids is None else run.doc_ids[number]
            if (texts.log < 0).any():
                raise lacking(TEXTS, f"question {doc_id} of {run.file_names}")
            for at, log in enumerate(texts.logs):
                (file,), chosen = log.files, texts[texts.log == at]
                if not chosen.log.size:
                    continue
                if run.doc_ids is None or plain_name(file).suffix != ".jsonl":
                    rule = "be samples of the harness, which hold what a verifier reads"
                    raise InvalidInputError.of("RUN", "unsupported", rule, run.file_names)
                where = f"question {doc_id} of {file.name}"
                cases = [partial(_case, run.questions[number], text, where) for text in chosen]
                by_file.setdefault(str(file), []).extend(
                    TrialCase(doc_id, int(place) % PER_RECORD, case_hash(read()), read)
                    for place, read in zip(chosen.place, cases, strict=True)
                )
        files += [
            JudgedFile(run.model, run.task, Path(file), tuple(trials), verdicts_path(file))
            for file, trials in by_file.items()
        ]
    return files


def _case(question: str, text: LoggedTexts, where: str) -> VerifierInput:
    (texts_of_trial,) = text.read()
    texts = None if texts_of_trial.text is None else [texts_of_trial.text]
    return verifier_inputs(question, texts_of_trial.right_answers, texts, where)[0]


def verdict_targets(files: Sequence[JudgedFile], out: Path | None) -> list[Path]:
    """Return where the verdicts on each samples file are written.

    Parameters
    ----------
    files : sequence of JudgedFile
        The samples files.
    out : Path or None
        A folder; or the file itself if there is one samples file; None for beside the samples.

    Raises
    ------
    InvalidInputError
        If there is no such folder, or two samples files would have one file of verdicts.
    """
    names = [verdicts_path(file.samples) for file in files]
    if out is None:
        return names
    targets = [out / path.name for path in names] if out.is_dir() else [out for _ in names]
    if not out.parent.is_dir():
        raise InvalidInputError.of("--out", "path", "lie in a folder that exists", str(out))
    samples = [file.samples.resolve() for file in files]
    if out.resolve() in samples or len(set(targets)) < len(targets):
        rule = "name no samples, and be a folder for several runs, of which no two write one file"
        raise InvalidInputError.of("--out", "conflict", rule, str(out))
    return targets


class OtherVerifierError(VerdictsError):
    """A file of verdicts holds those of another verifier."""


def check_verifier(verdicts: Verdicts, samples: str, verifier: Mapping[str, Any]) -> None:
    """Refuse to go on with another verifier, or for other samples.

    Raises
    ------
    OtherVerifierError
        Naming what differs.
    """
    before = {"samples": verdicts.header.samples, **verdicts.header.verifier}
    now = {"samples": samples, **verifier}
    differ = [
        f"{name} {one_line(old, 80)}, now {one_line(new, 80)}"
        for name in {**before, **now}
        if (old := canonical_json(before.get(name))) != (new := canonical_json(now.get(name)))
    ]
    if differ:
        sentence = (
            f"{verdicts.path} holds the verdicts of another verifier or on other samples "
            f"({'; '.join(differ)}); judge anew with --restart, which keeps these as .before, "
            "or write elsewhere with --out (rubrics only read what is beside the samples)"
        )
        raise OtherVerifierError(sentence, "mismatch", "verifier", differ)


class VerdictsFile(Verdicts):
    """A file of verdicts that more are added to; nobody else may meanwhile.

    Parameters
    ----------
    path : path
        The file; it is made with the header if it is missing.
    header : VerdictsHeader
        Of a new file; an existing file must be of the same verifier and samples, and keeps its
        own baseline.
    restart : bool
        Whether to replace an existing file, which is renamed to end in `.before`.

    Raises
    ------
    VerdictsError
        If an existing file is another verifier's, broken, or being written.
    StoreFileError
        If it cannot be written.
    """

    def __init__(
        self, path: str | PathLike[str], header: VerdictsHeader, restart: bool = False
    ) -> None:
        path = Path(path)
        if restart and path.exists():
            _opened(path).close()  # refused while another process writes
            with file_errors(path, "written"):
                path.replace(path.with_name(f"{path.name}.before"))
        if not path.exists():
            line = json.dumps(header.to_dict(), allow_nan=False) + "\n"
            with file_errors(path, "written"):
                write_atomic(path, line.encode("ascii"))
        self._file = _opened(path)
        try:
            verdicts = read_verdicts(path)
            check_verifier(verdicts, header.samples, header.verifier)
            self._file.truncate(verdicts.size)  # what a kill cut off
        except BaseException:
            self._file.close()
            raise
        super().__init__(path, verdicts.header, verdicts.trials, verdicts.size)

    def __enter__(self) -> VerdictsFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, verdicts: Iterable[TrialVerdict]) -> None:
        """Write verdicts, and see them safely on the disk.

        Raises
        ------
        StoreFileError
            If they cannot be written.
        """
        added = list(verdicts)
        lines = [json.dumps(verdict.to_dict(), allow_nan=False) + "\n" for verdict in added]
        with file_errors(self.path, "written"):
            self._file.write("".join(lines).encode("ascii"))
            self._file.flush()
            os.fsync(self._file.fileno())
        self.trials.update((verdict.key, verdict) for verdict in added)


def _opened(path: Path) -> IO[bytes]:
    """Open a file to add to it, and lock it until it is closed.

    It is not locked on Windows, and where the file system has no locks.
    """
    with file_errors(path, "written"):
        file = open(path, "ab")  # noqa: SIM115  closed by the caller
    with suppress(ImportError, OSError):
        import fcntl

        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            sentence = f"{path} is being written by another process"
            raise VerdictsError(sentence, "conflict", str(path)) from None
    return file
