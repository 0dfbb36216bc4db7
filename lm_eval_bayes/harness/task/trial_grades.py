"""The grades of single responses, each graded once by the task's own grader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.grading import programs
from lm_eval_bayes.harness.task import answers

log = get_logger(__name__)

_MOST_LOGGED_ERRORS = 10


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
        self._task, self._metric = task, task.outcomes[0].name
        self.runs_code = bool(getattr(task, "UNSAFE_CODE", False))
        # of trials that were graded early: hash of the response and grade, by filter and question
        self._early: dict[tuple[str, int | None], dict[int, tuple[int, GradedTrial]]] = {}
        self._shared: dict[str, GradedTrial] = {}
        self._sources: dict[str, answers.AnswerSource] = {}
        self._n_failures: Counter[str] = Counter()

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
        graders: list[Callable[[], Any]] = [partial(values_of, r) for r in new.values()]
        if self.runs_code and new:
            graders = programs.graders(values_of, list(new.values()))
        for grader, (number, response) in zip(graders, new.items(), strict=True):
            grades[number] = self._grade(grader, response, pipeline, doc_id, number)
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
        self,
        grader: Callable[[], Any],
        response: Any,
        pipeline: str,
        doc_id: object,
        trial: int,
    ) -> GradedTrial:
        """Return the grade of one response; a failing grader counts as wrong.

        Raises
        ------
        LmEvalBayesError
            If the task's configuration is wrong, which no trial can be counted for.
        """
        values, answer, error = None, None, None
        try:
            values = grader()
        except LmEvalBayesError:
            raise
        except programs.ProgramGradingError as problem:
            error = one_line(str(problem))
        except (Exception, SystemExit) as problem:
            error = one_line(f"{type(problem).__name__}: {problem}")
        else:
            error = values.get("grading_error") if isinstance(values, Mapping) else None
            answer = self._answer(values, response, pipeline)
        if error is not None:
            message = "%s: grading failed on question %s, trial %d; counted as wrong: %s"
            self.log_failure(message, self._task.config.task, doc_id, trial, error)
        return GradedTrial(values, answer, error)

    def answer_source(self, pipeline: str, values: Any = None) -> answers.AnswerSource:
        """Return where the answers of a pipeline's responses come from.

        It is decided once, by what the grader first gives, so that all questions have the same
        rows; without a row of maj@k one line says why.
        """
        if pipeline not in self._sources:
            source: answers.AnswerSource = "grader"
            if not isinstance(values, Mapping) or "answer" not in values:
                source = answers.answer_source(
                    next(each for each in self._task._filters if each.name == pipeline),
                    self._task.task_docs[0],
                    runs_code=self.runs_code,
                    matches_exactly=self._matches_exactly,
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

    @property
    def _matches_exactly(self) -> bool:
        """Whether `exact_match` of the harness compares what the filter leaves."""
        config = self._task.config
        return self._metric == "exact_match" and not callable(config.process_results)

    def _answer(self, values: Any, response: Any, pipeline: str) -> str | None:
        """Return the answer of a response, None where it has none."""
        source = self.answer_source(pipeline, values)
        if source == "grader":
            answer = values.get("answer")
            return None if answer is None else str(answer)
        if source == "none":
            return None
        no_match = answers.fallbacks(self._task.config.filter_list, pipeline)
        options = self._task._metric_fn_kwargs[self._metric] if self._matches_exactly else None
        return answers.answer_of(response, no_match, options)

    def log_failure(self, message: str, *arguments: object) -> None:
        """Log one of the first failures of a kind, and once that there are more."""
        self._n_failures[message] += 1
        if self._n_failures[message] <= _MOST_LOGGED_ERRORS:
            log.warning(message, *arguments)
        if self._n_failures[message] == _MOST_LOGGED_ERRORS:
            log.warning(
                "%s: further failures are not printed; the logged samples hold them",
                self._task.config.task,
            )


def _hash_of(response: object) -> int:
    return hash(response if isinstance(response, str) else repr(response))
