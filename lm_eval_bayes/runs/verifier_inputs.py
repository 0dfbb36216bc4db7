"""The trials of saved runs as cases to be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.verifier import VerifierInput, after_reasoning
from lm_eval_bayes.runs.saved_tasks import SavedTask
from lm_eval_bayes.runs.verdicts import case_hash, verdicts_path

#: Fields of a question's document that hold its text; without one the prompt is the question.
_QUESTION_FIELDS = ("problem", "question")


@dataclass(frozen=True)
class TrialCase:
    """One trial, as it is judged.

    Attributes
    ----------
    doc_id, trial : int
        The question's number in its task, and the trial's, both from 0.
    case : VerifierInput
        Question, standard answer and the text after the reasoning.
    text : str
        The hash of the case.
    """

    doc_id: int
    trial: int
    case: VerifierInput
    text: str


def saved_cases(saved: SavedTask, think_end: str, limit: int | None = None) -> list[TrialCase]:
    """Return the trials of a saved task.

    Parameters
    ----------
    saved : SavedTask
        The task of a run.
    think_end : str
        Ends the reasoning, which is not judged.
    limit : int or None
        Only so many questions, the first ones.

    Raises
    ------
    InvalidInputError
        If the samples hold no generated texts, no question or no standard answer.
    """
    found = []
    for row in saved.rows("RUN")[:limit]:
        doc_id = int(row["doc_id"])
        where = f"question {doc_id} of {saved.samples.name}"
        question, gold = _question(row), _gold(row)
        if not question:
            raise InvalidInputError.of("RUN", "hold the text of every question", where)
        if not gold:
            rule = "hold the standard answer of every question, which a verifier needs"
            raise InvalidInputError.of("RUN", rule, where)
        for trial, text in enumerate(_texts(row, where)):
            case = VerifierInput(question, gold, after_reasoning(text, think_end))
            found.append(TrialCase(doc_id, trial, case, case_hash(case)))
    return found


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
        raise InvalidInputError.of("RUN", "hold the generated texts of every question", where)
    return texts


def targets(saved: Sequence[SavedTask], out: Path | None) -> list[Path]:
    """Return where the verdicts on each task go.

    Parameters
    ----------
    saved : sequence of SavedTask
        The tasks.
    out : Path or None
        A folder; or the file itself if there is one task; None for beside the samples.

    Raises
    ------
    InvalidInputError
        If there is no such folder, or two tasks would write one file.
    """
    beside = [verdicts_path(one.samples) for one in saved]
    if out is None:
        return beside
    if len(saved) == 1 and not out.is_dir():
        if not out.parent.is_dir():
            raise InvalidInputError.of("--out", "lie in a folder that exists", str(out))
        if out.resolve() == saved[0].samples.resolve():
            raise InvalidInputError.of("--out", "be another file than the samples", str(out))
        return [out]
    if not out.is_dir():
        rule = f"be a folder that exists, for the {len(saved)} files of verdicts"
        raise InvalidInputError.of("--out", rule, str(out))
    inside = [out / path.name for path in beside]
    twice = [path.name for path in inside if inside.count(path) > 1]
    if twice:
        rule = "be left out, or be given for one run at a time: two would write one file"
        raise InvalidInputError.of("--out", rule, twice[0])
    return inside
