"""Instance-level records of Every Eval Ever: one for every trial of every question.

The trial's number stands in the record's `metadata`. Every record belongs to the result avg@N,
which is the mean of their scores, question by question. The texts are not in memory: they are
looked up in the run's samples files, and only taken where those files tell the same outcomes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from lm_eval_bayes._util.text import one_line, replace_surrogates
from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.export.every_eval_ever import SCHEMA, Submission
from lm_eval_bayes.export.every_eval_metrics import evaluation_name, result_id
from lm_eval_bayes.runs.readers import logged_rows
from lm_eval_bayes.runs.task_run import REGRADED, SECONDS, TOKENS, TaskRun

PROMPT_TOKENS = "prompt_tokens"


@dataclass
class InstancesFile:
    """Writes the records of a run and counts them.

    Attributes
    ----------
    summary : TaskSummary
        The run.
    submission : Submission
        Its aggregate record.
    texts : bool
        Whether questions, answers and completions go along.
    rows : int
        Records that were written.
    untold : int
        Those without the completion, since the files at hand do not tell it.
    checksum : str
        SHA-256 of what was written.
    """

    summary: TaskSummary
    submission: Submission
    texts: bool = True
    rows: int = field(default=0, init=False)
    untold: int = field(default=0, init=False)
    checksum: str = field(default="", init=False)

    def write(self, output: BinaryIO) -> None:
        """Write them to an open file, one a line."""
        digest = hashlib.sha256()
        for record in instances(self.summary, self.submission, texts=self.texts):
            line = (json.dumps(record, allow_nan=False) + "\n").encode("ascii")
            output.write(line)
            digest.update(line)
            self.rows += 1
            self.untold += not record["output"]["raw"]
        self.checksum = digest.hexdigest()


def check_instances(run: TaskRun, argument: str = "--instances") -> None:
    """Refuse a run of which only counts are known.

    Raises
    ------
    InvalidInputError
        If the trials of its questions are not known one by one.
    """
    if run.trials is None or not run.n_trials:
        rule = f"have the trials of {run.task} one by one, not only their counts"
        raise InvalidInputError.of(argument, rule, run.model)


def instances(
    summary: TaskSummary, submission: Submission, *, texts: bool = True
) -> Iterator[dict[str, Any]]:
    """Return the records of a run, question by question and trial by trial.

    Parameters
    ----------
    summary : TaskSummary
        The run.
    submission : Submission
        Its aggregate record.
    texts : bool
        Whether questions, answers and completions go along.

    Raises
    ------
    InvalidInputError
        If the trials of its questions are not known one by one.

    Examples
    --------
    >>> from lm_eval_bayes.export.every_eval_ever import submission
    >>> from lm_eval_bayes.analysis.summary import summarise
    >>> summary = summarise(TaskRun.from_trials("A", "aime25_bayes", [[0, 1], [1, 1]], ["p", "q"]))
    >>> found = list(instances(summary, submission(summary, model_id="org/A")))
    >>> [(one["sample_id"], one["metadata"]["trial"], one["evaluation"]["score"]) for one in found]
    [('p', '0', 0.0), ('p', '1', 1.0), ('q', '0', 1.0), ('q', '1', 1.0)]
    """
    run = summary.run
    check_instances(run)
    trials = run.trials or ()
    weights, best = run.outcomes.weights, float(run.outcomes.weights.max())
    average = f"avg@{summary.n}" if summary.average is not None else f"hbayes@{summary.n}"
    shared = {
        "schema_version": SCHEMA,
        "evaluation_id": submission.evaluation_id,
        "model_id": submission.model_id,
        "evaluation_name": evaluation_name(run),
        "evaluation_result_id": result_id(run, average),
        "interaction_type": "single_turn",
    }
    logged = _LoggedTexts(run) if texts else None
    for number, (name, categories) in enumerate(zip(run.question_ids, trials, strict=True)):
        said = _Said() if logged is None else logged.of(number)
        asked = replace_surrogates(_at(run.questions, number, "")) if texts else ""
        question: dict[str, Any] = {**shared, "sample_id": one_line(name)}
        if texts:
            question["sample_hash"] = _hash(asked, said.target)
        question["input"] = {"raw": asked, "reference": said.target}
        for trial, category in enumerate(categories.tolist()):
            score = float(weights[category])
            yield {
                **question,
                "output": {"raw": said.completions[trial : trial + 1]},
                # what was found in a right trial is the reference answer
                "answer_attribution": _attribution(run, number, trial) if texts else [],
                "evaluation": {"score": score, "is_correct": score == best},
                **_measured(run, number, trial),
                "metadata": _metadata(run, number, trial, category),
            }


# -- the parts of a record -----------------------------------------------------------------------


def _at(values: Sequence[Any] | None, number: int, missing: Any) -> Any:
    return values[number] if values is not None and number < len(values) else missing


def _hash(raw: str, reference: Sequence[str]) -> str:
    """Hash what was asked, so that runs can be matched whatever they call the question."""
    content = json.dumps({"raw": raw, "reference": " ".join(reference)}, sort_keys=True)
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def _attribution(run: TaskRun, number: int, trial: int) -> list[dict[str, Any]]:
    answer = _at(_at(run.answers, number, None), trial, None)
    if answer is None:
        return []
    plain = run.filter in ("", "none")
    return [
        {
            "turn_idx": 0,
            "source": "output.raw",
            "extracted_value": replace_surrogates(answer),
            "extraction_method": one_line(run.metric if plain else run.filter, 100),
            "is_terminal": True,
        }
    ]


def _measured(run: TaskRun, number: int, trial: int) -> dict[str, Any]:
    def one(name: str) -> float | None:
        column = run.measured.get(name)
        value = math.nan if column is None else float(column[number][trial])
        return value if math.isfinite(value) and value >= 0 else None

    found: dict[str, Any] = {}
    prompt, completion, seconds = one(PROMPT_TOKENS), one(TOKENS), one(SECONDS)
    if prompt is not None and completion is not None:
        found["token_usage"] = {
            "input_tokens": int(prompt),
            "output_tokens": int(completion),
            "total_tokens": int(prompt) + int(completion),
        }
    if seconds is not None:
        found["performance"] = {"generation_time_ms": 1000.0 * seconds}
    return found


def _metadata(run: TaskRun, number: int, trial: int, category: int) -> dict[str, str]:
    found = {"trial": str(trial), "category": str(category)}
    seed = _at(_at(run.seeds, number, None), trial, None)
    if seed is not None:
        found["seed"] = str(seed)
    prompt = _at(run.prompt_hashes, number, "")
    if prompt:
        found["prompt_hash"] = one_line(prompt, 200)
    return found


# -- the texts, from the samples files -----------------------------------------------------------


@dataclass(frozen=True)
class _Said:
    """What the files tell of a question."""

    target: list[str] = field(default_factory=list)
    completions: list[str] = field(default_factory=list)


class _LoggedTexts:
    """Finds the texts of a run's questions in its samples files, a question at a time."""

    def __init__(self, run: TaskRun) -> None:
        self.run = run
        self.places: dict[str, list[tuple[Path, int]]] = {}
        for source in run.sources:
            path = Path(source)
            if path.suffix == ".jsonl" and path.name.startswith("samples_") and path.is_file():
                self._find(path)

    def _find(self, path: Path) -> None:
        """Remember where each question stands, rather than what it says."""
        start = end = 0

        def advance(length: int) -> None:
            nonlocal start, end
            start, end = end, end + length

        for row in logged_rows.logged_rows(path, "RUN", [], advance):
            if not self.run.filter or (row.get("filter") or "") == self.run.filter:
                name = logged_rows.question_hash(row)
                self.places.setdefault(name, []).append((path, start))

    def of(self, number: int) -> _Said:
        """Return what the files tell of a question."""
        rows = [_line(*place) for place in self.places.get(self.run.question_ids[number], ())]
        target = next((one for one in map(_target, rows) if one is not None), None)
        reference = [] if target is None else [replace_surrogates(target)]
        trials = (self.run.trials or ())[number].tolist()
        found = [trial for row in rows for trial in _trials(row)]
        # several files of one question: in the order of the trials' own numbers
        found.sort(key=lambda trial: trial[0])
        numbers = [trial[0] for trial in found]
        if len(rows) > 1 and len(set(numbers)) < len(numbers):
            return _Said(reference)
        fits = len(found) == len(trials) and (
            self.run.metric == REGRADED
            or all(
                outcome is None or outcome == category
                for (_, outcome, _), category in zip(found, trials, strict=True)
            )
        )
        return _Said(reference, [replace_surrogates(trial[2]) for trial in found] if fits else [])


def _line(path: Path, offset: int) -> Mapping[str, Any]:
    with path.open("rb") as lines:
        lines.seek(offset)
        row = json.loads(lines.readline().decode("utf-8-sig" if not offset else "utf-8"))
    return row if isinstance(row, dict) else {}


def _target(row: Mapping[str, Any]) -> str | None:
    target = row.get("target")
    if isinstance(target, (int, float)) and not isinstance(target, bool):
        return str(target)
    return target if isinstance(target, str) else None


def _trials(row: Mapping[str, Any]) -> Iterator[tuple[int, int | None, str]]:
    """Return number, outcome (None where the line has none) and text of every graded trial."""
    texts = logged_rows.texts(row) or []
    outcomes, signals = row.get("outcomes"), row.get("signals")
    if not isinstance(outcomes, list):
        yield from ((number, None, text) for number, text in enumerate(texts))
        return
    numbers = signals.get("trial") if isinstance(signals, Mapping) else None
    if not isinstance(numbers, list) or not all(type(one) is int for one in numbers):
        numbers = list(range(len(outcomes)))
    if len(texts) == len(outcomes) == len(numbers):
        for number, outcome, text in zip(numbers, outcomes, texts, strict=True):
            if outcome is not None:
                yield number, outcome if type(outcome) is int else -1, text
