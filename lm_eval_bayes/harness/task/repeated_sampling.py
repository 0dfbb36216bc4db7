"""`RepeatedSamplingTask`: N graded trials per question, and a posterior over them.

Use it in a YAML that includes the task's own::

    include: his_task.yaml
    task: his_task_bayes
    class: !function lm_eval_bayes.tasks.RepeatedSamplingTask
    repeats: 16
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from lm_eval.api.task import ConfigurableTask

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.grading import programs
from lm_eval_bayes.harness.grading.grade import process_results_math
from lm_eval_bayes.harness.grading.task_metric import (
    check_metrics,
    single_result,
    takes_list,
)
from lm_eval_bayes.harness.instances import new_instance
from lm_eval_bayes.harness.models.stored_texts import are_stored, completions
from lm_eval_bayes.harness.task import answers, metrics, pipelines, questions
from lm_eval_bayes.harness.task import result_rows as rows
from lm_eval_bayes.harness.task.logged_fields import (
    LoggedResult,
    Responses,
    loggable,
    measured_columns,
)
from lm_eval_bayes.harness.task.protocol import prompt_of
from lm_eval_bayes.harness.task.requests import (
    build_requests,
    mark_pipelines,
    receive_responses,
    receive_stored,
    store_outcomes,
)
from lm_eval_bayes.harness.task.settings import check_rows
from lm_eval_bayes.rubric.answers import final_part
from lm_eval_bayes.runs.log_fields import cluster_label

log = get_logger(__name__)

_MOST_LOGGED_ERRORS = 10


class RepeatedSamplingTask(ConfigurableTask):
    """A `generate_until` task that samples every question N times.

    The task's own filters and `process_results` grade the responses one by one; the
    category of each goes into a Dirichlet posterior [Hariri 2026, Alg. 1]. N comes from
    `--metadata '{"bayes_n": 80}'`, else from `repeats`; the other settings are listed in
    :data:`lm_eval_bayes.harness.task.settings.KEYS`.

    Raises
    ------
    TaskConfigError, InvalidInputError
        If the YAML or the metadata do not allow N independent trials per question.
    DatasetUnavailableError
        If the questions cannot be loaded or lack a field that the task uses.
    """

    def __init__(
        self,
        data_dir: str | None = None,
        cache_dir: str | None = None,
        download_mode: Any = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        config = {k: v for k, v in (config or {}).items() if k != "class"}
        name = config.get("task", "?")
        if config.get("output_type", "generate_until") != "generate_until":
            sentence = (
                f"task {name}: `output_type` must be generate_until for repeated sampling; "
                f"got {config['output_type']!r}"
            )
            raise TaskConfigError(sentence, "unsupported", "output_type", config["output_type"])
        metadata = config.get("metadata")
        config["metadata"] = dict(metadata) if isinstance(metadata, Mapping) else {}
        self._read_settings(config)
        if "doc_to_text" in config:
            config["doc_to_text"] = prompt_of(name, config["doc_to_text"], config["metadata"])
        config["repeats"] = self.settings.n
        config["filter_list"] = pipelines.keep_all_responses(config.get("filter_list"), name)
        with questions.explained(name, config):
            super().__init__(data_dir, cache_dir, download_mode, config)
        self._yaml_generation_kwargs = dict(self.config.generation_kwargs or {})
        has_grader = callable(self.config.process_results)
        chosen = [outcome.name for outcome in self.outcomes]
        check_metrics(str(name), self._metric_fn_list, chosen, has_grader)
        self._outcome = chosen[0]
        # Metrics such as HumanEval's pass_at_k take all programs of a question; they get one.
        self._takes_list = takes_list(self._metric_fn_kwargs[self._outcome])
        if self._takes_list:
            self._metric_fn_kwargs[self._outcome]["k"] = [1]
        self._runs_code = bool(getattr(self, "UNSAFE_CODE", False))
        self._n_failures: Counter[str] = Counter()
        self._chosen: list[int] | None = None
        self._answer_sources: dict[str, answers.AnswerSource] = {}
        # of trials that were graded early, by filter and question
        self._grades: dict[tuple[str, int], metrics.GradesOfQuestion] = {}
        check_rows(self.settings, self.aggregation())
        if self.settings.cluster is not None:
            questions.check_clusters(self.task_docs, self.settings.cluster, str(name))
        n_questions, extra = len(self.task_docs), dict(self.settings.extra_trials)
        if max(extra, default=0) >= n_questions:
            rule = f"name questions of task {name}, 0 to {n_questions - 1}"
            raise InvalidInputError.of("bayes_extra_trials", "range", rule, max(extra))
        self.metric_errors: dict[str, str] = {}
        if self.settings.check:
            self._check_first_question()

    # -- before sampling -------------------------------------------------------------

    def _read_settings(self, config: Mapping[str, Any]) -> None:
        """Check the settings in the metadata, and add the checked ones to it as `bayes`."""
        self.outcomes = metrics.outcomes_of(config, certain=_grades_alone(config))
        self.settings = self.outcomes[0].settings
        config["metadata"]["bayes"] = self.settings.to_dict()
        if len(self.outcomes) > 1:
            config["metadata"]["bayes"]["metrics"] = [outcome.name for outcome in self.outcomes]

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Load the questions; a failure becomes an error of one sentence."""
        custom_dataset = self.config.custom_dataset
        with questions.loading(self.config):
            if callable(custom_dataset):  # as the harness, without its log line on --metadata
                arguments = {**(self.config.metadata or {}), **(self.config.dataset_kwargs or {})}
                self.dataset = custom_dataset(**arguments)
            else:
                super().download(dataset_kwargs, **kwargs)
        questions.check_split(self.dataset, self.config)
        questions.check_revision(self.dataset, self.config)

    def _first_question(self) -> tuple[Any, str]:
        """Return the first question and its own answer, with which graders are tested."""
        doc = self.task_docs[0]
        target = self.doc_to_target(doc)
        return doc, str(target[0] if isinstance(target, list) and target else target)

    def _check_first_question(self) -> None:
        """Grade the gold answer of the first question, to find a failing grader before sampling."""
        name, (doc, gold) = str(self.config.task), self._first_question()
        texts = [gold, f"The final answer is \\boxed{{{gold}}}."]
        for pipeline in self._filters:
            out = pipelines.probe_output(pipeline, self.settings.n, doc, texts, name)
            pipelines.check_keeps_all(pipeline, out, self.settings.n, name)
        if self._runs_code:  # nothing runs before the harness has seen --confirm_run_unsafe_code
            return
        results = []
        for text in texts:
            try:
                results.append(self._graded(doc, text))
            except LmEvalBayesError:
                raise
            except Exception as error:
                problem = error
        if not results:
            sentence = (
                f"task {name}: grading fails on the first question's own answer "
                f"({type(problem).__name__}: {problem}); {pipelines.HOW_TO_SKIP}"
            )
            raise TaskConfigError(sentence, "failed", "process_results") from problem
        for outcome in self.outcomes:
            for result in results:
                outcome.check(result)
        if self.settings.bounds is not None:
            return
        weights = self.settings.weights
        categories = [self.outcomes[0].category(result) for result in results]
        for pipeline in self._filters:
            self._answer_source(pipeline.name, results[0])
        if len(weights) > 2 and weights[categories[0]] < max(weights):
            log.warning(
                "task %s: the first question's own answer is graded %d of the categories 0..%d; if "
                "the grader never gives more, `bayes_categories` and `bayes_weights` are wrong",
                name,
                categories[0],
                len(weights) - 1,
            )

    def build_all_requests(self, **kwargs: Any) -> None:
        """Build one N-fold request per question."""
        self._chosen = kwargs.get("samples") or None
        build = super().build_all_requests
        build_requests(build, self, self.settings, self._yaml_generation_kwargs, kwargs)

    # -- after sampling --------------------------------------------------------------

    def apply_filters(self) -> None:
        """Run every filter pipeline over the N responses of each question.

        Where the texts are in a store, each question's are read and filtered when it is graded.
        """
        names = [pipeline.name for pipeline in self._filters]
        if receive_stored(self._instances, self.settings, str(self.config.task), names):
            return
        receive_responses(self._instances, self.settings, str(self.config.task))
        self._filter(self._instances)

    def _filter(self, instances: Sequence[Any], names: Sequence[str] | None = None) -> None:
        marker = (self.config.metadata or {}).get("think_end_token")
        raw = [instance.resps for instance in instances]
        try:
            if isinstance(marker, str):
                for instance in instances:
                    instance.resps = [
                        final_part(r, marker) if isinstance(r, str) else r for r in instance.resps
                    ]
            for pipeline in self._filters:
                if names is None or pipeline.name in names:
                    pipelines.apply(pipeline, instances, str(self.config.task))
        finally:
            for instance, responses in zip(instances, raw, strict=True):
                instance.resps = responses
        mark_pipelines(instances)

    @property
    def reads_stored_texts(self) -> bool:
        """Whether texts may stay in a store until a question is graded.

        Classes of users may read them elsewhere.
        """
        return type(self).__module__.startswith("lm_eval_bayes.")

    def with_texts(self, results: Any) -> Any:
        """Return the filtered responses to a question, read from the store if they are there."""
        stored = results[0]
        if not isinstance(stored, Responses) or not are_stored(stored.raw):
            return results
        texts = completions(stored.raw)
        (filtered,) = self._filtered(stored.instance, texts, [stored.pipeline])
        stored.set_filtered(filtered, filtered.raw)
        return [filtered]

    def _filtered(
        self, instance: Any, responses: Iterable[Any], names: Sequence[str]
    ) -> list[Responses]:
        """Return responses to the question of a request as some pipelines leave them."""
        texts = list(map(loggable, responses))
        part = new_instance(
            instance.doc, instance.args, repeats=len(texts), resps=texts, original=instance
        )
        self._filter([part], names)
        filtered = [part.filtered_resps[name] for name in names]
        part.filtered_resps = {}  # without a cycle of references, texts are freed at once
        return filtered

    # -- while trials are sampled ----------------------------------------------------

    def grade_early(self, instance: Any, trial: int, response: Any) -> None:
        """Grade a response before all have come; `process_results` then does not grade it again.

        Programs are graded several at a time, so they wait for :meth:`graded_outcomes`.
        """
        if not self._runs_code:
            self._grades_of(instance, {trial: response})

    def graded_outcomes(self, instance: Any, responses: Mapping[int, Any]) -> list[int]:
        """Grade responses to one question, store their outcomes and return them.

        Parameters
        ----------
        instance : Instance
            The request of the question.
        responses : mapping of int to str
            Responses by trial, ascending.

        Returns
        -------
        list of int
            The categories under the first filter.

        Raises
        ------
        TaskConfigError
            If a value of the metric is none that the settings allow.
        """
        outcomes: list[list[int]] = []
        for filtered, trials in self._grades_of(instance, responses):
            record = self.outcomes[0].record(
                trials, **self._context(instance.doc, filtered.pipeline)
            )
            if isinstance(record, rows.GradedResponses):
                self._store_outcomes(filtered, record)
                outcomes.append(list(record.outcomes))
        return outcomes[0]

    def count_trials(self, metadata: Mapping[str, Any]) -> None:
        """Change the number of trials of every question after sampling.

        Parameters
        ----------
        metadata : mapping
            The settings that depend on N, see :meth:`Settings.with_trials`, and others, which
            are ignored.
        """
        own, n = self.config.metadata, metadata["bayes_n"]
        own.pop("bayes_extra_trials", None)
        if isinstance(own.get("bayes_maj_k"), int) and own["bayes_maj_k"] > n:
            del own["bayes_maj_k"]
        for key in ("bayes_n", "bayes_k", "bayes_maj_k", "bayes_extra_trials"):
            if key in metadata:
                own[key] = metadata[key]
        for outcome in self.outcomes:
            outcome.settings = outcome.settings.with_trials(own)
        self.settings = self.outcomes[0].settings
        own["bayes"] = {**own["bayes"], **self.settings.to_dict()}
        self.config.repeats = self.settings.n

    def _grades_of(
        self, instance: Any, responses: Mapping[int, Any]
    ) -> list[tuple[Any, list[metrics.GradedTrial]]]:
        """Return the filtered responses to one question, and their grades, for every filter."""
        numbers, found = list(responses), []
        names = [pipeline.name for pipeline in self._filters]
        of_all = self._filtered(instance, responses.values(), names)
        for pipeline, filtered in zip(self._filters, of_all, strict=True):
            pipelines.check_keeps_all(pipeline, filtered, len(numbers), str(self.config.task))
            grades = self._graded_once(
                instance.doc, filtered, pipeline.name, numbers, instance.doc_id
            )
            early = self._grades.setdefault(
                (pipeline.name, instance.doc_id), metrics.GradesOfQuestion()
            )
            for number, response, grade in zip(numbers, filtered, grades, strict=True):
                early.add(number, response, grade)
            found.append((filtered, grades))
        return found

    def _graded_once(
        self,
        doc: Any,
        filtered: Sequence[Any],
        pipeline: str,
        numbers: Sequence[int],
        doc_id: int | None,
    ) -> list[metrics.GradedTrial]:
        """Grade those filtered responses to a question that were not graded early."""
        grades: dict[int, metrics.GradedTrial] = {}
        early = None if doc_id is None else self._grades.get((pipeline, doc_id))
        for number, response in zip(numbers, filtered, strict=True):
            graded = None if early is None else early.get(number, response)
            if graded is not None:
                grades[number] = graded
        new = {n: r for n, r in zip(numbers, filtered, strict=True) if n not in grades}
        grade = partial(self._graded, doc)
        graders: list[Callable[[], Any]] = [partial(grade, response) for response in new.values()]
        if self._runs_code and new:
            graders = programs.graders(grade, list(new.values()))
        for grader, (number, response) in zip(graders, new.items(), strict=True):
            grades[number] = self._grade(grader, response, pipeline, doc_id, number)
        return [grades[number] for number in numbers]

    # -- all responses of a question -------------------------------------------------

    def process_results(self, doc: Any, results: Any) -> LoggedResult:
        """Grade the N responses to one question.

        Parameters
        ----------
        doc : dict
            The question.
        results : list
            One entry: the N filtered responses.

        Returns
        -------
        LoggedResult
            Every row's number for this question, and for the log: outcomes, answers and
            lengths of the N trials, and their signals where the model recorded some.
        """
        responses = self.with_texts(results)[0]
        if not isinstance(responses, list):
            responses = list(responses) if isinstance(responses, tuple) else [responses]
        instance = getattr(responses, "instance", None)
        raw = responses if instance is None else instance.resps
        doc_id = None if instance is None else instance.doc_id
        measured = measured_columns(raw, getattr(results[0], "raw", ()))
        if "bypass" in self._metric_fn_list:  # --predict_only: nothing is graded
            return LoggedResult({"bypass": None}, measured)
        pipeline = str(getattr(responses, "pipeline", self._filters[0].name))
        trials = self._graded_once(doc, responses, pipeline, range(len(responses)), doc_id)
        if doc_id is not None:
            self._grades.pop((pipeline, doc_id), None)
        context = self._context(doc, pipeline)
        records = [outcome.record_or_leave_out(trials, **context) for outcome in self.outcomes]
        self.metric_errors = {o.name: str(o.error) for o in self.outcomes if o.error is not None}
        first, logged = records[0], dict(measured)
        result_rows: dict[str, Any] = {}
        rows_of_all: dict[str, Any] = {}
        for outcome, record in zip(self.outcomes, records, strict=True):
            if record is None:
                rows_of_all |= dict.fromkeys(outcome.aggregation(votes=self._votes), math.nan)
                logged[outcome.labelled("scores")] = outcome.raw_values(trials)
                continue
            of_question, of_all = outcome.rows_of_question(record)
            result_rows |= of_question
            rows_of_all |= of_all
            logged |= outcome.logged(record)
        if isinstance(first, rows.GradedResponses):
            self._store_outcomes(responses, first)
            if first.answer_source != "none":
                logged["answers"] = list(first.answers)
            if first.cluster is not None:
                logged["cluster"] = first.cluster
        notes = {i: trial.error for i, trial in enumerate(trials) if trial.error is not None}
        if notes:
            logged["grading_error_notes"] = notes
        result = LoggedResult(result_rows, logged)
        result.add_rows(rows_of_all)
        return result

    def _context(self, doc: Any, pipeline: str) -> dict[str, Any]:
        """Return what the record of a question has beside its grades."""
        field = self.settings.cluster
        return {
            "cluster": None if field is None else cluster_label(doc, field),
            "answer_source": self._answer_source(pipeline) if self._has_grades else "none",
            "origin": f"task {self.config.task}, filter {pipeline}",
        }

    def _store_outcomes(self, responses: Sequence[Any], record: rows.GradedResponses) -> None:
        task, version = str(self.config.task), str(self.VERSION)
        store_outcomes(responses, record, task=task, version=version, chosen=self._chosen)

    @property
    def _has_grades(self) -> bool:
        """Whether a metric grades responses, rather than giving scores."""
        return any(outcome.settings.bounds is None for outcome in self.outcomes)

    def _graded(self, doc: Any, response: Any) -> Any:
        """Return what the task's own grading gives one response."""
        result = super().process_results(doc, [[response] if self._takes_list else response])
        return single_result(result, self._outcome)

    def _grade(
        self,
        grader: Callable[[], Any],
        response: Any,
        pipeline: str,
        doc_id: object,
        trial: int,
    ) -> metrics.GradedTrial:
        """Return the grade of one response; a failing grader counts as wrong.

        Raises
        ------
        LmEvalBayesError
            If the task's configuration is wrong, which no trial can be counted for.
        """
        result, answer, error = None, None, None
        try:
            result = grader()
        except LmEvalBayesError:
            raise
        except programs.ProgramGradingError as problem:
            error = one_line(str(problem))
        except (Exception, SystemExit) as problem:
            error = one_line(f"{type(problem).__name__}: {problem}")
        else:
            error = result.get("grading_error") if isinstance(result, Mapping) else None
            if self._has_grades:
                answer = self._answer(result, response, pipeline)
        if error is not None:
            message = "%s: grading failed on question %s, trial %d; counted as wrong: %s"
            self._log_failure(message, self.config.task, doc_id, trial, error)
        return metrics.GradedTrial(result, answer, error)

    def _answer_source(
        self, pipeline: str, result: Mapping[str, Any] | None = None
    ) -> answers.AnswerSource:
        """Return where the answers of a pipeline's responses come from.

        It is decided once, by the first result of the grader, so that all questions have the same
        rows; without a row of maj@k one line says why.
        """
        if pipeline not in self._answer_sources:
            source = self._decided_source(pipeline, result or {})
            self._answer_sources[pipeline] = source
            if source == "none" and self.settings.binary:
                why = (
                    "programs are no answers that a vote could count"
                    if self._runs_code
                    else "a vote needs the final answer of each response, which no filter extracts "
                    "and `process_results` does not return as `answer`"
                )
                message = "task %s, filter %s: no row maj@%d: %s"
                log.warning(message, self.config.task, pipeline, self.settings.maj_k, why)
        return self._answer_sources[pipeline]

    def _decided_source(self, pipeline: str, result: Mapping[str, Any]) -> answers.AnswerSource:
        if "answer" in result:
            return "grader"
        by_name = {ensemble.name: ensemble for ensemble in self._filters}
        return answers.answer_source(
            by_name[pipeline],
            self.task_docs[0],
            runs_code=self._runs_code,
            matches_exactly=self._matches_exactly,
        )

    @property
    def _matches_exactly(self) -> bool:
        """Whether `exact_match` of the harness compares what the filter leaves."""
        return self._outcome == "exact_match" and not callable(self.config.process_results)

    def _answer(self, result: Mapping[str, Any], response: Any, pipeline: str) -> str | None:
        """Return the answer of a response, None where it has none."""
        source = self._answer_source(pipeline, result)
        if source == "grader":
            answer = result.get("answer")
            return None if answer is None else str(answer)
        if source == "none":
            return None
        no_match = answers.fallbacks(self.config.filter_list, pipeline)
        options = self._metric_fn_kwargs[self._outcome] if self._matches_exactly else None
        return answers.answer_of(response, no_match, options)

    def _log_failure(self, message: str, *arguments: object) -> None:
        """Log one of the first failures of a kind, and once that there are more."""
        self._n_failures[message] += 1
        if self._n_failures[message] <= _MOST_LOGGED_ERRORS:
            log.warning(message, *arguments)
        if self._n_failures[message] == _MOST_LOGGED_ERRORS:
            log.warning(
                "%s: further failures are not printed; the logged samples hold them",
                self.config.task,
            )

    # -- the rows, for the harness ------------------------------------------------------

    def aggregation(self) -> dict[str, Any]:
        """Return the aggregation of every row."""
        if "bypass" in self._metric_fn_list:
            return super().aggregation()
        functions: dict[str, Any] = {}
        for outcome in self.outcomes:
            functions |= outcome.aggregation(votes=self._votes)
        return functions

    def higher_is_better(self) -> dict[str, bool]:
        """Return the direction of every row."""
        if "bypass" in self._metric_fn_list:
            return super().higher_is_better()
        directions: dict[str, bool] = {}
        for outcome in self.outcomes:
            directions |= outcome.directions(votes=self._votes)
        return directions

    @property
    def _votes(self) -> bool:
        """Whether some pipeline's responses have answers, so that there is maj@k."""
        return not self._answer_sources or set(self._answer_sources.values()) != {"none"}


def _grades_alone(config: Mapping[str, Any]) -> bool:
    """Return whether the metric alone grades, without a function of the task."""
    grader = config.get("process_results")
    return grader is None or getattr(grader, "__module__", "") == process_results_math.__module__
