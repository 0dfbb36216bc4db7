"""`RepeatedSamplingTask`: N graded trials per question, and a posterior over them.

Use it in a YAML that includes the task's own::

    include: his_task.yaml
    task: his_task_bayes
    class: !function lm_eval_bayes.tasks.RepeatedSamplingTask
    repeats: 16
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm_eval.api.task import ConfigurableTask

from lm_eval_bayes.errors import LmEvalBayesError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import new_instance
from lm_eval_bayes.harness.grading.task_metric import (
    check_metrics,
    single_result,
    takes_list,
)
from lm_eval_bayes.harness.models.stored_texts import are_stored, completions
from lm_eval_bayes.harness.task import metrics, pipelines, questions
from lm_eval_bayes.harness.task import result_rows as rows
from lm_eval_bayes.harness.task.metrics import TrialGrader
from lm_eval_bayes.harness.task.pipelines import answer_part
from lm_eval_bayes.harness.task.prompts import joined
from lm_eval_bayes.harness.task.protocol import prompt_of
from lm_eval_bayes.harness.task.requests import (
    LoggedResult,
    Responses,
    build_requests,
    endings,
    loggable,
    loggable_values,
    measured_columns,
    receive_responses,
    receive_stored,
    store_outcomes,
)
from lm_eval_bayes.runs.log_fields import cluster_label

log = get_logger(__name__)


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
        try:
            super().__init__(data_dir, cache_dir, download_mode, config)
        except LmEvalBayesError:
            raise
        except Exception as error:
            raise questions.building_error(name, error) from error
        self._yaml_generation_kwargs = dict(self.config.generation_kwargs or {})
        has_grader = callable(self.config.process_results)
        chosen = [outcome.name for outcome in self.outcomes]
        check_metrics(str(name), self._metric_fn_list, chosen, has_grader)
        self._outcome = chosen[0]
        # Metrics such as HumanEval's pass_at_k take all programs of a question; they get one.
        self._takes_list = takes_list(self._metric_fn_kwargs[self._outcome])
        if self._takes_list:
            self._metric_fn_kwargs[self._outcome]["k"] = [1]
        self.grader = TrialGrader(self)
        self.chosen: list[int] | None = None
        if self.settings.cluster is not None:
            questions.check_clusters(self.task_docs, self.settings.cluster, str(name))
        if self.settings.check:
            self._check_first_question()

    # -- before sampling -------------------------------------------------------------

    def _read_settings(self, config: Mapping[str, Any]) -> None:
        """Check the settings in the metadata, and add the checked ones to it as `bayes`."""
        self.outcomes = metrics.outcomes_of(config)
        self.settings = self.outcomes[0].settings
        config["metadata"]["bayes"] = self.settings.to_dict()
        if len(self.outcomes) > 1:
            config["metadata"]["bayes"]["metrics"] = [outcome.name for outcome in self.outcomes]

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Load the questions; a failure becomes an error of one sentence."""
        custom_dataset = self.config.custom_dataset
        try:
            if callable(custom_dataset):  # as the harness, without its log line on --metadata
                arguments = {**(self.config.metadata or {}), **(self.config.dataset_kwargs or {})}
                self.dataset = custom_dataset(**arguments)
            else:
                super().download(dataset_kwargs, **kwargs)
        except Exception as error:
            raise questions.loading_error(self.config, error) from error
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
        if self.grader.runs_code:  # which --confirm_run_unsafe_code has to allow first
            return
        # a wrong and longer response shows error rates above 1 and scores below 0
        results = {}
        for text in ("wrong " * (len(gold) + 9), *texts):
            try:
                results[text] = self.values_of(doc, text)
            except LmEvalBayesError:
                raise
            except Exception as error:
                problem = error
        own = [results[text] for text in texts if text in results]
        if not own:
            sentence = (
                f"task {name}: grading fails on the first question's own answer "
                f"({type(problem).__name__}: {problem}); {pipelines.HOW_TO_SKIP}"
            )
            raise TaskConfigError(sentence, "failed", "process_results") from problem
        for outcome in self.outcomes:
            for result in (*own, *results.values()):
                outcome.outcome(result)
        for pipeline in self._filters:
            self.grader.answer_source(pipeline.name, own[0])
        weights, category = self.settings.weights, self.outcomes[0].outcome(own[0])
        if len(weights) > 2 and weights[int(category)] < max(weights):
            log.warning(
                "task %s: the first question's own answer is graded %d of the categories 0..%d; if "
                "the grader never gives more, `bayes_weights` is wrong",
                *(name, category, len(weights) - 1),
            )

    def build_all_requests(self, **kwargs: Any) -> None:
        """Build one N-fold request per question, or one for each variant of its prompt."""
        self.chosen = kwargs.get("samples") or None
        build = super().build_all_requests
        build_requests(build, self, self.settings, self._yaml_generation_kwargs, kwargs)

    def question_number(self, doc_id: int) -> int:
        """Return the number of a question in the task; the harness numbers `--samples` anew."""
        return doc_id if self.chosen is None else sorted(set(self.chosen))[doc_id]

    # -- after sampling --------------------------------------------------------------

    def apply_filters(self) -> None:
        """Run every filter pipeline over the N responses of each question.

        Where the texts are in a store, each question's are read and filtered when it is graded.
        """
        if self.settings.prompts:
            self._instances: list[Any] = joined(self._instances, self.settings, self.first_trial)
        names = [pipeline.name for pipeline in self._filters]
        if receive_stored(self._instances, self.settings, str(self.config.task), names):
            return
        receive_responses(self._instances, self.settings, str(self.config.task))
        self._filter(self._instances, names)

    def _filter(self, instances: Sequence[Any], names: Sequence[str]) -> None:
        marker = (self.config.metadata or {}).get("think_end_token")
        raw = [instance.resps for instance in instances]
        try:
            for instance in instances:
                instance.resps = [answer_part(response, marker) for response in instance.resps]
            for pipeline in self._filters:
                if pipeline.name in names:
                    pipelines.apply(pipeline, instances, str(self.config.task))
        finally:
            for instance, responses in zip(instances, raw, strict=True):
                instance.resps = responses
        for instance in instances:
            for name, filtered in instance.filtered_resps.items():
                instance.filtered_resps[name] = Responses(filtered, instance, name)

    @property
    def reads_stored_texts(self) -> bool:
        """Whether texts may stay in a store until a question is graded.

        Classes of users may read them elsewhere; those of several prompts are joined before.
        """
        return type(self).__module__.startswith("lm_eval_bayes.") and not self.settings.prompts

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
        part.labels = getattr(instance, "labels", ())
        self._filter([part], names)
        filtered = [part.filtered_resps[name] for name in names]
        part.filtered_resps = {}  # without a cycle of references, texts are freed at once
        return filtered

    # -- while trials are sampled ----------------------------------------------------

    def graded_outcomes(self, instance: Any, responses: Mapping[int, Any]) -> list[int]:
        """Grade responses to one question, store their outcomes and return them.

        Once all responses have come, :meth:`process_results` does not grade these again.

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
        records, doc, names = [], instance.doc, [pipeline.name for pipeline in self._filters]
        of_all = self._filtered(instance, responses.values(), names)
        for pipeline, filtered in zip(self._filters, of_all, strict=True):
            pipelines.check_keeps_all(pipeline, filtered, len(responses), str(self.config.task))
            by_trial = dict(zip(responses, filtered, strict=True))
            trials = self.grader.grade_early(doc, by_trial, pipeline.name, instance.doc_id)
            records.append(self.outcomes[0].record(trials, **self._context(doc, filtered)))
            store_outcomes(self, filtered, records[-1])
        first = records[0]
        if first.problem is not None or first.are_scores:
            sentence = first.problem or (
                f"task {self.config.task}: interim analyses need categories; the metric "
                f"`{self._outcome}` gives scores"
            )
            raise TaskConfigError(sentence, "range", "metric_list")
        return [int(outcome) for outcome in first.outcomes]

    def count_trials(self, n: int, extra: Mapping[int, int]) -> None:
        """Change the number of trials of every question after sampling.

        Parameters
        ----------
        n : int
            N.
        extra : mapping of int to int
            Further trials of single questions.
        """
        for outcome in self.outcomes:
            outcome.settings = outcome.settings.with_trials(n, extra)
        self.settings = self.outcomes[0].settings
        metadata = self.config.metadata
        block = {**metadata["bayes"], **self.settings.to_dict()}
        self.config.metadata = {**metadata, "bayes_n": n, "bayes": block}
        self.config.repeats = n

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
            The printed rows; and for the log outcomes, answers, lengths and the metrics' values of
            the N trials, and their signals where the model recorded some.
        """
        responses = self.with_texts(results)[0]
        if not isinstance(responses, list):
            responses = list(responses) if isinstance(responses, tuple) else [responses]
        instance = getattr(responses, "instance", None)
        raw = responses if instance is None else instance.resps
        labels = getattr(instance, "labels", ())[: len(raw)]
        measured = measured_columns(raw, getattr(results[0], "raw", ()))
        measured |= {"setting": list(labels)} if labels else {}
        if "bypass" in self._metric_fn_list:  # --predict_only: nothing is graded
            return LoggedResult({"bypass": None}, measured, {"bypass": None})
        pipeline, doc_id = self._pipeline_of(responses), getattr(instance, "doc_id", None)
        trials = self.grader.grades(doc, dict(enumerate(responses)), pipeline, doc_id)
        self.grader.forget(pipeline, doc_id)
        context = {**self._context(doc, responses), "labels": tuple(labels)}
        records = [outcome.record(trials, **context) for outcome in self.outcomes]
        first = records[0]
        store_outcomes(self, responses, first)
        if first.problem is None:
            measured["scores" if first.are_scores else "outcomes"] = list(first.outcomes)
        if first.answer_source != "none":
            measured["answers"] = [trial.answer for trial in trials]
        if first.cluster is not None:
            measured["cluster"] = first.cluster
        notes = {i: trial.error for i, trial in enumerate(trials) if trial.error is not None}
        if notes:
            measured["grading_error_notes"] = notes
        values = loggable_values([trial.values for trial in trials], self._metric_fn_list)
        question_rows = {k: v for record in records for k, v in rows.question_rows(record).items()}
        return LoggedResult(question_rows, measured, values)

    def _pipeline_of(self, responses: Any) -> str:
        return str(getattr(responses, "pipeline", self._filters[0].name))

    def _context(self, doc: Any, responses: Any) -> dict[str, Any]:
        """Return what the record of a question has beside its grades."""
        field, pipeline = self.settings.cluster, self._pipeline_of(responses)
        return {
            "cluster": None if field is None else cluster_label(doc, field),
            "answer_source": self.grader.answer_source(pipeline),
            "origin": f"task {self.config.task}, filter {pipeline}",
            **endings(getattr(responses, "raw", responses)),
        }

    def values_of(self, doc: Any, response: Any) -> Any:
        """Return what the task's own grading gives one response."""
        result = super().process_results(doc, [[response] if self._takes_list else response])
        return single_result(result, self._outcome)

    # -- the rows, for the harness ------------------------------------------------------

    def aggregation(self) -> dict[str, Any]:
        """Return the aggregation of every row."""
        if "bypass" in self._metric_fn_list:
            return super().aggregation()
        return {row: rows.aggregate for outcome in self.outcomes for row in outcome.rows}

    def higher_is_better(self) -> dict[str, bool]:
        """Return the direction of every row."""
        if "bypass" in self._metric_fn_list:
            return super().higher_is_better()
        names = [row for outcome in self.outcomes for row in outcome.rows]
        return {name: name not in rows.SHARES for name in names if not name.endswith("_stderr")}
