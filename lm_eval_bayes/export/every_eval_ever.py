"""Results in the schema of Every Eval Ever, version 0.3.0: one aggregate record per run.

The schema [evalevalai.com, the wheel `every-eval-ever`] has one entry for every metric of a run,
with its uncertainty. The fields for confidence intervals and standard errors have a credible
interval and a posterior standard deviation, as the `method` of each states. A "sample" of the
schema is a question here, so `num_samples` is M; N is in `metric_parameters` as `n`, and the
total number of trials in `details`. Paths, addresses and keys of a run are not exported.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_eval_bayes._util.hashing import hash_json
from lm_eval_bayes._util.text import one_line, replace_surrogates
from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.export.every_eval_metrics import ended, results_of
from lm_eval_bayes.export.files import is_reserved, slug
from lm_eval_bayes.export.run_metadata import (
    as_text,
    benchmark_of,
    check_model_id,
    file_warnings,
    generation_settings,
    hub_id,
    hub_model,
    model_settings,
    versions,
)
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import Scope, ScoreOutcomes

#: Version of the schema.
SCHEMA = "0.3.0"

#: Backends that run the model on the evaluator's machine.
_LOCAL = frozenset({"hf", "hf-auto", "vllm", "sglang", "gguf", "nemo_lm", "mamba_ssm", "openvino"})
_LOCAL |= {"hf-signals", "vllm-signals"}
_ENGINES = {"hf": "transformers", "vllm": "vllm", "sglang": "sglang", "gguf": "llama.cpp"}


@dataclass(frozen=True)
class Sender:
    """Facts about a submission that the run does not record.

    Attributes
    ----------
    organization : str
        Submitting organization.
    relationship : str
        Relation of the evaluator to the model's developer, such as "third_party".
    developer : str
        The model's developer, unless its id names it.
    deployment, availability : str
        Who runs the model, such as "self_deployed", and who has its weights, such as
        "open_weights"; a deployment of "" follows from the backend.
    """

    organization: str = "not stated"
    relationship: str = "other"
    developer: str = ""
    deployment: str = ""
    availability: str = "unknown"


@dataclass(frozen=True)
class Submission:
    """A run's aggregate record and the paths of its files.

    Attributes
    ----------
    record : mapping
        The record, plain JSON types.
    folder : str
        The record's folder, from the root of the datastore.
    name : str
        File name without the suffix: a UUID that depends on the run only.
    model_id, evaluation_id : str
        The ids to which instance-level records refer.
    """

    record: Mapping[str, Any]
    folder: str
    name: str
    model_id: str
    evaluation_id: str

    @property
    def path(self) -> str:
        """The record's file, from the root of the datastore."""
        return f"{self.folder}/{self.name}.json"

    @property
    def instances_path(self) -> str:
        """The file of its instance-level records, from the root of the datastore."""
        return f"{self.folder}/{self.name}_samples.jsonl"

    def with_instances(self, rows: int, checksum: str) -> Submission:
        """Return the submission with a reference to its instance-level records.

        Parameters
        ----------
        rows : int
            Number of records.
        checksum : str
            SHA-256 of their file.
        """
        reference = {
            "format": "jsonl",
            "file_path": self.instances_path,
            "hash_algorithm": "sha256",
            "checksum": checksum,
            "total_rows": rows,
        }
        return replace(self, record={**self.record, "detailed_evaluation_results": reference})

    def to_json(self) -> str:
        """Return the record as JSON, in ASCII."""
        return json.dumps(self.record, indent=2, allow_nan=False) + "\n"


def submission(
    summary: TaskSummary,
    *,
    model_id: str | None = None,
    collection: str | None = None,
    sender: Sender | None = None,
    scope: Scope | None = None,
    reading_warnings: Sequence[str] = (),
) -> Submission:
    """Return a model's results on a task in the schema of Every Eval Ever.

    Parameters
    ----------
    summary : TaskSummary
        The model's numbers.
    model_id : str, optional
        The model as ``org/name``; by default from its arguments, else its name.
    collection : str, optional
        The benchmark's folder in the datastore; by default the benchmark's name.
    sender : Sender, optional
        Facts that the run does not record.
    scope : {"benchmark", "population"}, optional
        Scope of hbayes@N; by default both.
    reading_warnings : sequence of str
        Warnings of the reader; those about the run's own files, for example that a log is cut
        off, become part of the details of every result.

    Returns
    -------
    Submission

    Raises
    ------
    InvalidInputError
        If `model_id` is no id, or the model's developer is unknown.

    Examples
    --------
    >>> from lm_eval_bayes.analysis.summary import summarise
    >>> run = TaskRun.from_trials("A", "aime25_bayes", [[0, 1, 1, 0], [0, 0, 0, 1]], ["p", "q"])
    >>> result = submission(summarise(run), model_id="org/A")
    >>> result.folder, result.record["schema_version"]
    ('data/aime_2025/org/A', '0.3.0')
    >>> first = result.record["evaluation_results"][0]
    >>> first["evaluation_result_id"], first["metric_config"]["metric_parameters"]["n"]
    ('hbayes@4', 4)
    """
    sender = Sender() if sender is None else sender
    run = summary.run
    harness = "lm_eval" in run.provenance.versions
    name, developer = _model(run, model_id, sender.developer)
    benchmark = benchmark_of(run)
    identity = _uuid(run, name)
    own_stamp = ended(run).get("evaluation_timestamp", identity)
    parts = (collection or benchmark.file, *name.split("/"))
    record: dict[str, Any] = {
        "schema_version": SCHEMA,
        # the same whenever the run is exported: the second in which it ended, or its own id
        "evaluation_id": one_line(f"{run.task}/{name}/{own_stamp}"),
        "retrieved_timestamp": str(int(time.time())),
        **ended(run),
        "source_metadata": {
            "source_name": "lm-evaluation-harness" if harness else "trials",
            "source_type": "evaluation_run",
            "source_organization_name": replace_surrogates(sender.organization),
            "evaluator_relationship": sender.relationship,
        },
        "eval_library": _library(run),
        "model_info": _model_info(run, name, developer, sender),
        "evaluation_results": results_of(summary, scope, file_warnings(run, reading_warnings)),
    }
    return Submission(
        record=record,
        folder="/".join(["data", *map(_component, parts)]),
        name=identity,
        model_id=name,
        evaluation_id=record["evaluation_id"],
    )


# -- the parts -----------------------------------------------------------------------------------


def _model(run: TaskRun, model_id: str | None, developer: str) -> tuple[str, str]:
    """Return the model's id and its developer."""
    if model_id is not None:
        check_model_id(model_id)
    name = model_id or hub_model(run)
    if name is not None:
        return name, developer or name.partition("/")[0]
    if not developer:
        rule = f"name the developer of {run.model}, as org/name, since the run does not"
        rule += f" (of several models: {run.model}=org/name)"
        raise InvalidInputError.of("--model-id", "missing", rule, "no name")
    return f"{slug(developer)}/{slug(run.model)}", developer


def _component(name: str) -> str:
    """Return a folder name of the datastore: a valid part of a hub id unchanged, else a slug."""
    if hub_id(f"org/{name}") is not None and not is_reserved(name):
        return name
    plain = slug(name)
    return f"{plain}_" if is_reserved(plain) else plain


def _uuid(run: TaskRun, name: str) -> str:
    """Return a UUID in the form of version 4 that is a hash of the model and its trials."""
    outcomes = run.outcomes
    content = {
        "model": name,
        "task": run.task,
        "metric": run.metric,
        "filter": run.filter,
        "counts": outcomes.counts.tolist(),
        "weights": outcomes.weights.tolist(),
        "ids": list(run.question_ids),
        "trials": None if run.trials is None else [trials.tolist() for trials in run.trials],
        "date": run.provenance.date,
        "settings": generation_settings(run),
    }
    if isinstance(outcomes, ScoreOutcomes):
        content["scores"] = [scores.tolist() for scores in outcomes.scores]
    digits = hash_json(content).partition(":")[2]
    return str(uuid.UUID(hex=digits, version=4))


def _library(run: TaskRun) -> dict[str, Any]:
    packages = versions(run)
    harness = packages.pop("lm_eval", None)
    return {
        "name": "lm_eval" if harness else "unknown",
        "version": harness or "unknown",
        "additional_details": packages,
    }


def _model_info(run: TaskRun, name: str, developer: str, sender: Sender) -> dict[str, Any]:
    backend = run.provenance.backend
    deployment = sender.deployment or ("self_deployed" if backend in _LOCAL else "unknown")
    engine = _ENGINES.get(backend.removesuffix("-signals"))
    info: dict[str, Any] = {"name": name, "id": name, "developer": replace_surrogates(developer)}
    if engine:
        info["inference_engine"] = {"name": engine}
        version = run.provenance.versions.get(engine)
        if version is not None:
            info["inference_engine"]["version"] = as_text(version)
    info["additional_details"] = {
        "deployment_type": deployment,
        "model_availability": sender.availability,
        **model_settings(run),
    }
    if backend:
        info["additional_details"]["harness_backend"] = one_line(backend, 60)
    return info
