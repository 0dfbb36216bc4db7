"""The grades of single responses, each graded once by the task's own grader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.grading import worker_pool
from lm_eval_bayes.harness.task import pipelines

log = get_logger(__name__)


class GradedTrial(NamedTuple):
    """One graded response.

    Attributes
    ----------
    values : mapping or None
        What the task's own grading gave, by metric; None where it failed.
    answer : str or None
        The answer, where responses have one.
    error : str or None
        Why grading failed.
    """

    values: Mapping[str, Any] | None
    answer: str | None
    error: str | None

    @property
    def failed(self) -> bool:
        """Whether grading raised an error; the response counts as wrong then."""
        return self.values is None and self.error is not None


class TrialGrader:
    """Grades the filtered responses to the questions of a task.

    Parameters
    ----------
    task : RepeatedSamplingTask
        The task, which is graded by its first metric.
    """

    def __init__(self, task: Any) -> None:
        self._task, metric = task, task.outcomes[0].name
        # the options of the harness's `exact_match` where it compares what the filter leaves
        self._exact_match: Mapping[str, Any] | None = None
        if metric == "exact_match" and not callable(task.config.process_results):
            self._exact_match = task._metric_fn_kwargs[metric]
        self.runs_code = bool(getattr(task, "UNSAFE_CODE", False))
        # of trials that were graded early: hash of the response and grade, by filter and question
        self._early: dict[tuple[str, int | None], dict[int, tuple[int, GradedTrial]]] = {}
        self._shared: dict[str, GradedTrial] = {}
        self._sources: dict[str, pipelines.AnswerSource] = {}
        self._logged: set[str] = set()

    def grades(
        self, doc: Any, responses: Mapping[int, Any], pipeline: str, doc_id: int | None
    ) -> list[GradedTrial]:
        """Grade filtered responses to a question, by trial, that were not graded early."""
        early = self._early.get((pipeline, doc_id), {})
        grades = {
            number: early[number][1]
            for number, response in responses.items()
            if number in early and early[number][0] == _hash_of(response)
        }
        new = {number: r for number, r in responses.items() if number not in grades}
        values_of = partial(self._task.values_of, doc)
        replies: Iterable[worker_pool.Reply] = map(
            partial(worker_pool.reply, values_of), new.values()
        )
        if self.runs_code and new:
            replies = worker_pool.replies(values_of, list(new.values()))
        for reply, (number, response) in zip(replies, new.items(), strict=True):
            grades[number] = self._grade(reply, response, pipeline, doc_id, number)
        return [grades[number] for number in responses]

    def grade_early(
        self, doc: Any, responses: Mapping[int, Any], pipeline: str, doc_id: int
    ) -> list[GradedTrial]:
        """Grade responses, and hold the grades until the question is graded."""
        grades = self.grades(doc, responses, pipeline, doc_id)
        held = self._early.setdefault((pipeline, doc_id), {})
        for (number, response), grade in zip(responses.items(), grades, strict=True):
            # most trials have one of a few grades; 1, 1.0 and True are different ones
            held[number] = _hash_of(response), self._shared.setdefault(repr(grade), grade)
        return grades

    def forget(self, pipeline: str, doc_id: int | None) -> None:
        """Drop the early grades of a question."""
        self._early.pop((pipeline, doc_id), None)

    def _grade(
        self, reply: worker_pool.Reply, response: Any, pipeline: str, doc_id: object, trial: int
    ) -> GradedTrial:
        """Return the grade of one response; one that failed counts as wrong."""
        kind, values = reply
        answer: str | None = None
        error: str | None = None
        if kind == "error":
            values, error = None, one_line(values)
        else:
            answer = self._answer(values, response, pipeline)
        if isinstance(values, Mapping):
            error = values.get("grading_error")
        if error is not None:
            message = "%s: grading failed on question %s, trial %d; counted as wrong: %s"
            self.log_failure(message, self._task.config.task, doc_id, trial, error)
        return GradedTrial(values, answer, error)

    def answer_source(self, pipeline: str, values: Any = None) -> pipelines.AnswerSource:
        """Return where the answers of a pipeline's responses come from.

        It is decided once, by what the grader first gives, so that all questions have the same
        rows; without a row of maj@k one line says why.
        """
        if pipeline not in self._sources:
            source: pipelines.AnswerSource = "grader"
            if not isinstance(values, Mapping) or "answer" not in values:
                source = pipelines.answer_source(
                    next(each for each in self._task._filters if each.name == pipeline),
                    self._task.task_docs[0],
                    runs_code=self.runs_code,
                    matches_exactly=self._exact_match is not None,
                )
            self._sources[pipeline] = source
            settings, row = self._task.settings, f"maj@{self._task.settings.n}"
            is_counted = settings.binary and settings.bounds is None
            if source == "none" and is_counted and row in self._task.aggregation():
                log.warning(
                    "task %s, filter %s: no row %s: no filter extracts the final answer of a "
                    "response, and `process_results` does not return it as `answer`",
                    *(self._task.config.task, pipeline, row),
                )
        return self._sources[pipeline]

    def _answer(self, values: Any, response: Any, pipeline: str) -> str | None:
        """Return the answer of a response, None where it has none."""
        source = self.answer_source(pipeline, values)
        if source == "grader":
            answer = values.get("answer")
            return None if answer is None else str(answer)
        if source == "none":
            return None
        no_match = pipelines.fallbacks(self._task.config.filter_list, pipeline)
        return pipelines.answer_of(response, no_match, self._exact_match)

    def log_failure(self, message: str, *arguments: object) -> None:
        """Log the first failure of a kind; the logged samples hold all."""
        if message not in self._logged:
            self._logged.add(message)
            log.warning(f"{message} (further ones are in the logged samples)", *arguments)


def _hash_of(response: object) -> int:
    return hash(response if isinstance(response, str) else repr(response))
