"""Instance-level records of Every Eval Ever: one for every trial of every question.

The trial's number is in the record's `metadata`. All records refer to the result avg@N, which is
the mean of their scores. Texts are read from the run's samples files, question by question.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from lm_eval_bayes._util.text import one_line, replace_surrogates
from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.export.every_eval_ever import SCHEMA, Submission
from lm_eval_bayes.export.every_eval_metrics import evaluation_name, result_id
from lm_eval_bayes.export.run_metadata import is_filtered, published_label
from lm_eval_bayes.runs.question_texts import QuestionTexts, question_texts
from lm_eval_bayes.runs.task_run import GRADED, REGRADED, SECONDS, TOKENS, TaskRun
from lm_eval_bayes.stats import ScoreOutcomes

PROMPT_TOKENS = "prompt_tokens"


@dataclass
class InstancesFile:
    """The file of a run's records.

    Attributes
    ----------
    summary : TaskSummary
        The run.
    submission : Submission
        Its aggregate record.
    texts : bool
        Whether questions, answers and completions are included.
    rows : int
        Number of records written.
    without_completion : int
        Number of records without a completion, because the samples files lack it.
    checksum : str
        SHA-256 of the file.
    """

    summary: TaskSummary
    submission: Submission
    texts: bool = True
    rows: int = field(default=0, init=False)
    without_completion: int = field(default=0, init=False)
    checksum: str = field(default="", init=False)

    def write(self, output: BinaryIO) -> None:
        """Write the records to an open file, one per line."""
        digest = hashlib.sha256()
        for record in instances(self.summary, self.submission, texts=self.texts):
            line = (json.dumps(record, allow_nan=False) + "\n").encode("ascii")
            output.write(line)
            digest.update(line)
            self.rows += 1
            self.without_completion += not record["output"]["raw"]
        self.checksum = digest.hexdigest()


def check_instances(run: TaskRun) -> None:
    """Raise if only the counts of a run are known.

    Raises
    ------
    InvalidInputError
        If the single trials are unknown.
    """
    if (run.trials is None and not run.scored) or not run.n_trials:
        rule = f"have single trials of {run.task}, not only counts"
        raise InvalidInputError.of("--instances", "unsupported", rule, run.model)


def instances(
    summary: TaskSummary, submission: Submission, *, texts: bool = True
) -> Iterator[dict[str, Any]]:
    """Return the records of a run, question by question and trial by trial.

    Parameters
    ----------
    summary : TaskSummary
        The run, whose single trials are known, see `check_instances`.
    submission : Submission
        Its aggregate record.
    texts : bool
        Whether questions, answers and completions are included.

    Examples
    --------
    >>> from lm_eval_bayes.export.every_eval_ever import submission
    >>> from lm_eval_bayes.analysis.summary import summarise
    >>> summary = summarise(TaskRun.from_trials("A", "aime25_bayes", [[0, 1], [1, 1]], ["p", "q"]))
    >>> records = instances(summary, submission(summary, model_id="org/A"))
    >>> [(r["sample_id"], r["metadata"]["trial"], r["evaluation"]["score"]) for r in records]
    [('p', '0', 0.0), ('p', '1', 1.0), ('q', '0', 1.0), ('q', '1', 1.0)]
    """
    run = summary.run
    best = float(run.outcomes.weights.max()) if run.threshold is None else run.threshold
    average = f"avg@{summary.n}" if summary.average is not None else f"hbayes@{summary.n}"
    shared = {
        "schema_version": SCHEMA,
        "evaluation_id": submission.evaluation_id,
        "model_id": submission.model_id,
        "evaluation_name": evaluation_name(run),
        "evaluation_result_id": result_id(run, average),
        "interaction_type": "single_turn",
    }
    for number, (name, scores) in enumerate(zip(run.question_ids, _scores(run), strict=True)):
        read = question_texts(run, number) if texts else QuestionTexts()
        reference, completions = list(read.right_answers[:1]), read.responses
        question_text = replace_surrogates(_at(run.questions, number, "")) if texts else ""
        question: dict[str, Any] = {**shared, "sample_id": one_line(name)}
        if texts:
            question["sample_hash"] = _hash(question_text, reference)
        question["input"] = {"raw": question_text, "reference": reference}
        for trial, score in enumerate(scores):
            yield {
                **question,
                "output": {"raw": [t for t in completions[trial : trial + 1] if t is not None]},
                # the extracted answer of a right trial would be the reference answer
                "answer_attribution": _attribution(run, number, trial) if texts else [],
                # without a threshold only the highest score is surely that of a right answer
                "evaluation": {"score": score, "is_correct": score >= best},
                **_measured(run, number, trial),
                "metadata": _metadata(run, number, trial),
            }


# -- the parts of a record -----------------------------------------------------------------------


def _at(values: Sequence[Any] | None, number: int, missing: Any) -> Any:
    return values[number] if values is not None and number < len(values) else missing


def _scores(run: TaskRun) -> Iterator[list[float]]:
    """Yield the scores of the trials of every question."""
    if isinstance(run.outcomes, ScoreOutcomes):
        yield from (scores.tolist() for scores in run.outcomes.scores)
    for categories in run.trials or ():
        yield run.outcomes.weights[categories].tolist()


def _hash(raw: str, reference: Sequence[str]) -> str:
    """Hash a question and its reference, so that runs with other question ids can be matched."""
    content = json.dumps({"raw": raw, "reference": " ".join(reference)}, sort_keys=True)
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def _attribution(run: TaskRun, number: int, trial: int) -> list[dict[str, Any]]:
    answer = _at(_at(run.answers, number, None), trial, None)
    if answer is None:
        return []
    return [
        {
            "turn_idx": 0,
            "source": "output.raw",
            "extracted_value": replace_surrogates(answer),
            "extraction_method": one_line(_extraction(run), 100),
            "is_terminal": True,
        }
    ]


def _extraction(run: TaskRun) -> str:
    """Return how answers were extracted from the texts."""
    if run.metric == REGRADED:
        return "math-verify"
    if is_filtered(run):
        return f"filter {run.filter} of the task"
    return "the task's own grader" if run.metric == GRADED else "the task's own filter"


def _measured(run: TaskRun, number: int, trial: int) -> dict[str, Any]:
    def value_of(name: str) -> float | None:
        column = run.measured.get(name)
        value = math.nan if column is None else float(column[number][trial])
        return value if math.isfinite(value) and value >= 0 else None

    usage: dict[str, Any] = {}
    prompt, completion, seconds = value_of(PROMPT_TOKENS), value_of(TOKENS), value_of(SECONDS)
    if prompt is not None and completion is not None:
        usage["token_usage"] = {
            "input_tokens": int(prompt),
            "output_tokens": int(completion),
            "total_tokens": int(prompt) + int(completion),
        }
    if seconds is not None:
        usage["performance"] = {"generation_time_ms": 1000.0 * seconds}
    return usage


def _metadata(run: TaskRun, number: int, trial: int) -> dict[str, str]:
    metadata = {"trial": str(trial)}
    if run.trials is not None:
        metadata["category"] = str(run.trials[number][trial])
    seed = _at(_at(run.seeds, number, None), trial, None)
    if seed is not None:
        metadata["seed"] = str(seed)
    if run.setting is not None:
        metadata["setting"] = published_label(run.settings, run.setting[number][trial])
    prompt = _at(run.prompt_hashes, number, "")
    if prompt:
        metadata["prompt_hash"] = one_line(prompt, 200)
    return metadata
