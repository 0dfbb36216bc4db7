"""`RubricTask`: repeated sampling whose trials are also sorted into rubrics' categories.

Use it in a YAML beside the task's own, or beside one of this package's::

    include: his_task.yaml
    task: his_task_rubric
    class: !function lm_eval_bayes.tasks.RubricTask
    repeats: 16
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import LmEvalBayesError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import current_evaluation
from lm_eval_bayes.harness.models.stored_texts import recorded_signals
from lm_eval_bayes.harness.rubrics import result_rows as rows
from lm_eval_bayes.harness.rubrics.custom_rubric import CustomRubric
from lm_eval_bayes.harness.rubrics.result_rows import RubricSettings
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.requests import LoggedResult
from lm_eval_bayes.harness.task.result_rows import RowValue, aggregate
from lm_eval_bayes.rubric.signals import (
    RECORDED,
    SIGNALS,
    completion_limit,
    source_of,
    trial_signals,
)
from lm_eval_bayes.rubric.thresholds import OWN_THRESHOLDS

log = get_logger(__name__)

#: The signals that a user's function gets, None where a trial lacks one.
_SIGNALS = (*SIGNALS, *RECORDED, "outcome", "finish_reason", "stop_reason")

#: Rubrics' signals that are computed from one that a recording model logs.
_DERIVED = {"completion_tokens": "token_ratio", "finish_reason": "repeated_pattern"}
_LOGGED = frozenset({*RECORDED, "finish_reason", "completion_bpt", "prompt_bpt"})


class RubricTask(RepeatedSamplingTask):
    """A repeatedly sampled task with a row for every rubric.

    Besides the rows of :class:`RepeatedSamplingTask` it has ``rubric_<schema>@N`` with sd and
    interval for each of the twelve schemata of [Hariri 2026, App. D] whose signals the model
    records, and for rubrics of the user's own. ``rubric_missing`` counts trials that lack a
    signal, and ``rubric_thresholds`` is the hash of the percentiles in use. The settings are
    listed in :data:`lm_eval_bayes.harness.rubrics.result_rows.KEYS`.

    Raises
    ------
    TaskConfigError, InvalidInputError
        If a rubric cannot be read, leaves a case without a category, or needs a signal that
        the model will not record.
    """

    # -- before sampling -------------------------------------------------------------

    def _read_settings(self, config: Mapping[str, Any]) -> None:
        super()._read_settings(config)
        metadata = config["metadata"]
        self.rubrics = RubricSettings.from_metadata(metadata)
        metadata.pop("rubric_own", None)  # functions cannot be logged; `bayes` names them
        metadata["bayes"]["rubrics"] = self.rubrics.to_dict()
        frozen = self.rubrics.thresholds
        self._frozen = None if frozen is None else frozen.of(str(config.get("task", "?")))
        self._shown = self.rubrics.rubrics

    def _check_first_question(self) -> None:
        """Test the grader and the user's functions on the first question's own answer."""
        super()._check_first_question()
        doc, gold = self._first_question()
        for custom in self.rubrics.own:
            if custom.choose is None:
                continue
            try:
                custom.category(copy.deepcopy(doc), gold, dict.fromkeys(_SIGNALS))
            except LmEvalBayesError:
                raise
            except (Exception, SystemExit) as error:
                message = one_line(f"{type(error).__name__}: {error}")
                sentence = (
                    f"task {self.config.task}: the function of rubric {custom.schema.name} fails "
                    f"on the first question's own answer ({message}); signals "
                    "that no model has recorded yet are None; bayes_check: false skips this test"
                )
                raise TaskConfigError(sentence, "failed", "category") from error

    def build_all_requests(self, **kwargs: Any) -> None:
        """Build one N-fold request per question, if the rubrics will find their signals."""
        evaluation = current_evaluation()
        if evaluation is not None:
            unrecorded = getattr(evaluation.model, "cannot_record", None)
            logged = frozenset() if unrecorded is None else _LOGGED.difference(unrecorded)
            self._check_signals(self._known_before() | _with_derived(logged))
        super().build_all_requests(**kwargs)

    def _known_before(self) -> frozenset[str]:
        """Return the signals that need no recording model."""
        custom = {custom.column for custom in self.rubrics.own if custom.choose is not None}
        graded = {"is_correct"} if self.settings.binary else set()
        return frozenset({"outcome", "has_box", "text_loop"} | graded | custom)

    def _check_signals(self, available: frozenset[str]) -> None:
        """Raise an error if a named rubric lacks a signal; log the other rubrics that do."""
        required = [custom.schema for custom in self.rubrics.own]
        required += self.rubrics.schemata if self.rubrics.named else ()
        rubrics_by_missing: dict[str, list[str]] = {}
        for schema in self.rubrics.rubrics:
            missing = [name for name in schema.needs if name not in available]
            if missing and schema in required:
                message = "; ".join(f"{name} comes from {source_of(name)}" for name in missing)
                sentence = (
                    f"task {self.config.task}: rubric {schema.name} needs signals that no model of "
                    f"this run records: {message}"
                )
                raise TaskConfigError(sentence, "missing", "rubric_schemata", missing)
            if missing:
                rubrics_by_missing.setdefault(", ".join(missing), []).append(schema.name)
        for signals, names in rubrics_by_missing.items():
            log.info("%s: no rows for %s (no %s)", self.config.task, ", ".join(names), signals)

    # -- after sampling --------------------------------------------------------------

    def apply_filters(self) -> None:
        """Run the filters, and leave out rubrics whose signals no response has."""
        super().apply_filters()
        logged = {name for instance in self._instances for name in recorded_signals(instance.resps)}
        available = self._known_before() | _with_derived(frozenset(logged))
        self._shown = tuple(
            schema for schema in self.rubrics.rubrics if available.issuperset(schema.needs)
        )
        if self._frozen is None and any(schema.uses_thresholds for schema in self._shown):
            log.info("%s: rubrics: %s", self.config.task, OWN_THRESHOLDS)
        left_out = [schema.name for schema in self.rubrics.rubrics if schema not in self._shown]
        if left_out and (self.rubrics.named or not self._shown):
            log.warning(
                "%s: no rows for the rubrics %s: the responses carry none of the signals they "
                "need; sample with --model trials, vllm-signals or hf-signals",
                *(self.config.task, ", ".join(left_out)),
            )

    def process_results(self, doc: Any, results: Any) -> LoggedResult:
        """Grade the N responses to one question, and add their signals.

        Returns
        -------
        LoggedResult
            The rows of :class:`RepeatedSamplingTask` and the rubrics'; for the log also every
            signal, one value a trial.
        """
        results = self.with_texts(results)
        logged = super().process_results(doc, results)
        if "outcomes" not in logged:  # --predict_only
            return logged
        responses = results[0]
        raw = [str(text) for text in getattr(responses, "raw", responses)]
        recorded = logged.get("signals", {})
        sent: Any = getattr(getattr(responses, "instance", None), "args", ())
        kwargs = sent[1] if len(sent) > 1 else self.config.generation_kwargs
        columns = trial_signals(
            raw,
            logged["outcomes"],
            recorded,
            binary=self.settings.binary,
            max_gen_toks=completion_limit(kwargs),
            think_end_token=(self.config.metadata or {}).get("think_end_token"),
        )
        for custom in self.rubrics.own:
            if custom.choose is not None:
                columns[custom.column] = self._choose(custom, doc, raw, recorded, columns, logged)
        logged["signals"] = {**recorded, **columns, **recorded}
        signals = rows.QuestionSignals(
            columns=columns,
            task=str(self.config.task),
            rubrics=self._shown,
            thresholds=self._frozen,
            prior=self.rubrics.prior,
            settings=self.settings,
        )
        logged.rows |= {name: RowValue(math.nan, name, signals) for name in self._rubric_rows()}
        return logged

    def _choose(
        self,
        custom: CustomRubric,
        doc: Any,
        texts: list[str],
        recorded: Mapping[str, Any],
        columns: Mapping[str, Any],
        logged: LoggedResult,
    ) -> list[float | None]:
        """Return the category that the user's function gives each trial, None where it fails."""
        categories: list[float | None] = []
        for trial, text in enumerate(texts):
            signals: dict[str, Any] = dict.fromkeys(_SIGNALS)
            signals |= {name: values[trial] for name, values in {**recorded, **columns}.items()}
            try:
                category = custom.category(copy.deepcopy(doc), text, signals)
            except (Exception, SystemExit) as error:
                category = None
                message = one_line(f"{custom.schema.name}: {type(error).__name__}: {error}")
                logged.setdefault("rubric_error_notes", {})[trial] = message
                self.grader.log_failure(
                    "%s: a trial is in no category of %s", self.config.task, message
                )
            categories.append(None if category is None else float(category))
        return categories

    # -- the rows, for the harness ------------------------------------------------------

    def _rubric_rows(self) -> list[str]:
        if "bypass" in self._metric_fn_list:
            return []
        return rows.printed_names(self._shown, self.settings.n)

    def aggregation(self) -> dict[str, Any]:
        """Return the aggregation of every row."""
        return {**super().aggregation(), **dict.fromkeys(self._rubric_rows(), aggregate)}

    def higher_is_better(self) -> dict[str, bool]:
        """Return the direction of every row."""
        names = [n for n in self._rubric_rows() if not n.endswith("_stderr")]
        return {**super().higher_is_better(), **{n: n != rows.MISSING_ROW for n in names}}


def _with_derived(logged: frozenset[str]) -> frozenset[str]:
    """Return signals that models log, and the rubrics' signals that come from them."""
    return logged | {_DERIVED[name] for name in logged & _DERIVED.keys()}
