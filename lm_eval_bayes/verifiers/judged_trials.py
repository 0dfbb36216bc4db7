"""The trials of runs that a verifier judges, one samples file after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.verifier_prompt import VerifierInput
from lm_eval_bayes.runs.logged_texts import PER_RECORD, LoggedTexts
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.runs.verdicts import TEXTS, case_hash, lacking, verdicts_path, verifier_inputs


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
    (found,) = text.read()
    texts = None if found.text is None else [found.text]
    return verifier_inputs(question, found.right_answers, texts, where)[0]


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
