"""The trials of saved runs as inputs of a verifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.verifier_prompt import VerifierInput, after_reasoning
from lm_eval_bayes.runs.logged_texts import read_line
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.runs.verdicts import case_hash, verdicts_path

#: Fields of the document of a question that hold its text; without one the prompt is the question.
_QUESTION_FIELDS = ("problem", "question")
_TEXTS = "hold the generated texts of every question"


@dataclass(frozen=True)
class TrialCase:
    """One trial, as it is judged.

    Attributes
    ----------
    doc_id, trial : int
        The number of the question in its task, and the index of the text among the responses of
        its line in the samples file, both from 0.
    case : VerifierInput
        Question, standard answer and the text after the reasoning.
    text : str
        The hash of the case.
    """

    doc_id: int
    trial: int
    case: VerifierInput
    text: str


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
    """

    model: str
    task: str
    samples: Path
    trials: tuple[TrialCase, ...]


def files_to_judge(
    runs: Sequence[TaskRun], think_end: str, limit: int | None = None
) -> list[JudgedFile]:
    """Read the texts of runs, one samples file after the other.

    Verdicts are kept per samples file, so a run that was merged from several is judged in parts.

    Parameters
    ----------
    runs : sequence of TaskRun
        The runs.
    think_end : str
        Ends the reasoning, which is not judged.
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
            where = ", ".join(run.sources) or run.model
            raise InvalidInputError.of("RUN", _TEXTS, where)
        for number, texts in enumerate(run.texts[:limit]):
            if (texts.index < 0).any():
                doc_id = number if run.doc_ids is None else run.doc_ids[number]
                where = f"question {doc_id} of {run.file_names}"
                raise InvalidInputError.of("RUN", _TEXTS, where)
            for line, chosen in texts.by_line():
                inputs = verifier_inputs(read_line(line), Path(line.file).name, think_end)
                responses = set(texts.index[chosen, 1].tolist())
                by_file.setdefault(line.file, []).extend(
                    trial for trial in inputs if trial.trial in responses
                )
        files += [
            JudgedFile(run.model, run.task, Path(file), tuple(trials))
            for file, trials in by_file.items()
        ]
    return files


def verifier_inputs(row: Mapping[str, Any], samples: str, think_end: str) -> Iterator[TrialCase]:
    """Yield the inputs of a verifier for the trials of one line of a samples file.

    Parameters
    ----------
    row : mapping
        The line.
    samples : str
        The name of the file, for errors.
    think_end : str
        Ends the reasoning, which is not judged.

    Raises
    ------
    InvalidInputError
        If the line holds no generated texts, no question or no standard answer.
    """
    doc_id = int(row["doc_id"])
    where = f"question {doc_id} of {samples}"
    question, gold = _question(row), _gold(row)
    if not question:
        raise InvalidInputError.of("RUN", "hold the text of every question", where)
    if not gold:
        rule = "hold the standard answer of every question, which a verifier needs"
        raise InvalidInputError.of("RUN", rule, where)
    for trial, text in enumerate(_texts(row, where)):
        case = VerifierInput(question, gold, after_reasoning(text, think_end))
        yield TrialCase(doc_id, trial, case, case_hash(case))


def _question(row: Mapping[str, Any]) -> str:
    doc = row.get("doc")
    for name in _QUESTION_FIELDS:
        text = doc.get(name) if isinstance(doc, Mapping) else None
        if isinstance(text, str) and text.strip():
            return text.strip()
    try:
        prompt = row["arguments"]["gen_args_0"]["arg_0"]
    except (KeyError, TypeError):
        return ""
    return prompt.strip() if isinstance(prompt, str) else ""


def _gold(row: Mapping[str, Any]) -> str:
    target = row.get("target")
    if isinstance(target, list) and all(isinstance(part, str) for part in target):
        target = " or ".join(target)
    if isinstance(target, (int, float)) and not isinstance(target, bool):
        target = str(target)
    return target.strip() if isinstance(target, str) else ""


def _texts(row: Mapping[str, Any], where: str) -> list[str]:
    try:
        (texts,) = row["resps"]
    except (KeyError, TypeError, ValueError):
        texts = None
    if not isinstance(texts, list) or any(not isinstance(text, str) for text in texts):
        raise InvalidInputError.of("RUN", _TEXTS, where)
    return texts


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
    beside = [verdicts_path(file.samples) for file in files]
    if out is None:
        return beside
    if len(files) == 1 and not out.is_dir():
        if not out.parent.is_dir():
            raise InvalidInputError.of("--out", "lie in a folder that exists", str(out))
        if out.resolve() == files[0].samples.resolve():
            raise InvalidInputError.of("--out", "be another file than the samples", str(out))
        return [out]
    if not out.is_dir():
        rule = f"be a folder that exists, for the {len(files)} files of verdicts"
        raise InvalidInputError.of("--out", rule, str(out))
    inside = [out / path.name for path in beside]
    twice = [path.name for path in inside if inside.count(path) > 1]
    if twice:
        rule = "be left out, or be given for one run at a time: two would write one file"
        raise InvalidInputError.of("--out", rule, twice[0])
    return inside
