"""0.4's `ConfigurableTask` in harness 0.5, on its tasks and scorers.

Its tasks grade, reduce and aggregate by way of a scorer per filter pipeline. Here every scorer
gets the results of `process_results`, as 0.4 hands them to `aggregation`: one number object a row
and question. The bootstrap over rows and the reduction of repeats are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from lm_eval.api.task import GenerateTask
from lm_eval.config.templates import _coerce_list, process_field

from lm_eval_bayes.errors import DatasetUnavailableError

#: The function in the place of a metric that the harness does not have.
_UNKNOWN = "_unregistered_metric_placeholder"


class ConfigurableTask(GenerateTask):
    """A `generate_until` task with the methods and attributes of 0.4's class of this name."""

    def __init__(
        self,
        data_dir: str | None = None,
        cache_dir: str | None = None,
        download_mode: Any = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        config = dict(config or {})
        super().__init__(config)
        if "filter_list" in config:  # without the nested `kwargs` and metrics that 0.5 adds
            self.config.filter_list = config["filter_list"]
        self.UNSAFE_CODE = bool(self.config.unsafe_code)
        self._read_metrics()
        self.download(self.config.dataset_kwargs)
        docs = self.test_docs() if self.has_test_docs() else self.validation_docs()
        if docs is not None and not len(docs):
            raise DatasetUnavailableError(
                f"task {self.config.task}: the dataset must have at least one question after "
                "`process_docs`; it has none"
            )
        self.task_docs = self.eval_docs
        self.doc_to_text(self.task_docs[0])
        self.doc_to_target(self.task_docs[0])

    def _read_metrics(self) -> None:
        metrics = {m.name: m for scorer in self.scorers for m in scorer.metrics or ()}
        self._metric_fn_list = {
            name: None if metric.fn.__name__ == _UNKNOWN else metric.fn
            for name, metric in metrics.items()
        }
        self._metric_fn_kwargs = {name: metric.kwargs for name, metric in metrics.items()}

    def override_metric(self, metric_name: str) -> None:
        """Replace all metrics by one, such as `bypass` for ``--predict_only``."""
        super().override_metric(metric_name)
        self._read_metrics()

    @property
    def _filters(self) -> list[Any]:
        return [scorer.filter for scorer in self.scorers]

    def process_results(self, doc: Any, results: Sequence[Any]) -> Any:
        """Grade one response by the task's function, or else by its metrics."""
        if callable(self.config.process_results):
            return self.config.process_results(doc, results)
        gold, response = self.doc_to_target(doc), results[0]
        if self.config.doc_to_choice is not None and isinstance(gold, int):
            gold = (self.doc_to_choice(doc) or [])[gold]
        if not isinstance(gold, list):
            return self._scores(gold, response)
        # any of several answers may be given
        scores = [self._scores(option, response) for option in gold]
        return {name: max(score[name] for score in scores) for name in scores[0]}

    def _scores(self, gold: Any, response: Any) -> dict[str, Any]:
        """Return what the metrics give one response, as numbers."""
        if not isinstance(response, (list, type(gold))):
            gold = type(response)(gold)
        scores: dict[str, Any] = {}
        scored: set[str] = set()
        for scorer in self.scorers:
            names = {metric.name for metric in scorer.metrics or ()}
            if not names <= scored:  # most pipelines have the same metrics
                options = {"multiple_targets": False}
                scores = {**scorer.score(gold, [response], options), **scores}
                scored |= names
        return {
            name: value[0] if isinstance(value, list) and len(value) == 1 else value
            for name, value in scores.items()
        }

    def doc_to_target(self, doc: Any, doc_to_target: Any = None) -> Any:
        """Return the target of a question as 0.4 reads it: "007" is no integer, "[1, 2]" a list."""
        if self.config.doc_to_choice is not None or self._multiple_targets:
            return super().doc_to_target(doc, doc_to_target)
        target = _coerce_list(process_field(doc, doc_to_target or self.config.doc_to_target))
        return str(target) if isinstance(target, int) else target

    def doc_iterator(
        self,
        *,
        rank: int = 0,
        limit: int | None = None,
        world_size: int = 1,
        samples: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Yield the questions of a rank; those of ``--samples`` are numbered from 0, as in 0.4."""
        if not samples:
            return super().doc_iterator(rank=rank, limit=limit, world_size=world_size)
        chosen = enumerate(self.eval_docs[index] for index in sorted(set(samples)))
        return islice(chosen, rank, None, world_size)

    def process_instances(self) -> None:
        """Filter and grade the responses, pipeline by pipeline."""
        self.apply_filters()
        for scorer in self.scorers:
            scorer.import_reduced(
                {
                    instance.doc_id: self.process_results(
                        instance.doc, [instance.filtered_resps[scorer.name]]
                    )
                    for instance in self.instances
                }
            )

    def aggregate(self, bootstrap_iters: int | None = None) -> tuple[dict[str, Any], int]:
        """Return the rows of every pipeline, and the number of questions."""
        functions, rows, size = self.aggregation(), {}, 0
        for scorer in self.scorers:
            results = [dict(result.items()) for result in scorer.reduced_docs.values()]
            size = max(size, len(results))
            for name in results[0] if results else ():
                number = functions[name]([result[name] for result in results])
                rows[f"{name},{scorer.name}"] = number
                if not name.endswith("_stderr"):
                    rows.setdefault(f"{name}_stderr,{scorer.name}", "N/A")
        return rows, size
