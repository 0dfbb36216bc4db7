"""Results in the schema of Every Eval Ever, version 0.3.0: one aggregate record a run.

The schema [evalevalai.com, the wheel `every-eval-ever`] has one entry for every metric of a run,
with its uncertainty. It speaks of confidence intervals and standard errors; ours are a credible
interval and a posterior standard deviation, and the `method` of each says so. A "sample" of the
schema is a question here, so `num_samples` is M; the trials stand in `metric_parameters` as `n`
and, in all, in `details`. Nothing of a run's own paths, addresses or keys goes out.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes._util.hashing import hash_json
from lm_eval_bayes._util.text import one_line, replace_surrogates
from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.export.benchmarks import benchmark_of
from lm_eval_bayes.export.every_eval_metrics import ended, results_of
from lm_eval_bayes.export.file_names import is_reserved, slug
from lm_eval_bayes.export.settings import (
    as_text,
    generation_settings,
    hub_id,
    model_settings,
    said_model,
    versions,
)
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.intervals import SCOPES, Scope
from lm_eval_bayes.stats.validation import check_option

#: The version of the schema that is written.
SCHEMA = "0.3.0"
RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")
DEPLOYMENTS = ("self_deployed", "externally_managed", "unknown")
AVAILABILITIES = ("open_weights", "closed_weights", "unknown")

#: Backends that run a model in the process or on the machine of whoever evaluates it.
_OWN = frozenset({"hf", "hf-auto", "vllm", "sglang", "gguf", "nemo_lm", "mamba_ssm", "openvino"})
_OWN_SIGNALS = frozenset({"hf-signals", "vllm-signals"})
_ENGINES = {"hf": "transformers", "vllm": "vllm", "sglang": "sglang", "gguf": "llama.cpp"}


@dataclass(frozen=True)
class Sender:
    """What the run itself cannot tell.

    Attributes
    ----------
    organization : str
        Who sends this.
    relationship : str
        Of who evaluated to who made the model, one of `RELATIONSHIPS`.
    developer : str
        Who made the model, where its id does not tell.
    deployment, availability : str
        One of `DEPLOYMENTS` and `AVAILABILITIES`; a deployment of "" is told by the backend.
    """

    organization: str = "not stated"
    relationship: str = "other"
    developer: str = ""
    deployment: str = ""
    availability: str = "unknown"


@dataclass(frozen=True)
class Submission:
    """One run's aggregate record, and where its files belong.

    Attributes
    ----------
    record : mapping
        The record, plain JSON types.
    folder : str
        The record's folder, from the root of the datastore.
    name : str
        The name of its file without a suffix: a UUID that the run alone determines.
    model_id, evaluation_id : str
        What instance-level records refer to.
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
        """Return it with a reference to its instance-level records.

        Parameters
        ----------
        rows : int
            How many there are.
        checksum : str
            SHA-256 of their file.
        """
        about = {
            "format": "jsonl",
            "file_path": self.instances_path,
            "hash_algorithm": "sha256",
            "checksum": checksum,
            "total_rows": rows,
        }
        record = {**self.record, "detailed_evaluation_results": about}
        return Submission(record, self.folder, self.name, self.model_id, self.evaluation_id)

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
    now: float | None = None,
) -> Submission:
    """Write one model's results on one task in the schema of Every Eval Ever.

    Parameters
    ----------
    summary : TaskSummary
        The model's numbers.
    model_id : str, optional
        The model as ``org/name``; left out, what its arguments tell, else its name.
    collection : str, optional
        The folder of the benchmark in the datastore; left out, the benchmark's name.
    sender : Sender, optional
        What the run itself cannot tell.
    scope : {"benchmark", "population"}, optional
        Of hbayes@N; left out, both are there.
    now : float, optional
        When this is written, in seconds since 1970 UTC.

    Returns
    -------
    Submission

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or nothing tells who made the model.

    Examples
    --------
    >>> from lm_eval_bayes.analysis.summary import summarise
    >>> run = TaskRun.from_trials("A", "aime25_bayes", [[0, 1, 1, 0], [0, 0, 0, 1]], ["p", "q"])
    >>> found = submission(summarise(run), model_id="org/A")
    >>> found.folder, found.record["schema_version"]
    ('data/aime_2025/org/A', '0.3.0')
    >>> first = found.record["evaluation_results"][0]
    >>> first["evaluation_result_id"], first["metric_config"]["metric_parameters"]["n"]
    ('hbayes@4', 4)
    """
    sender = Sender() if sender is None else sender
    scope = None if scope is None else check_option("scope", scope, SCOPES)
    run = summary.run
    name, developer = _model(run, model_id, sender.developer)
    written = str(int(time.time() if now is None else now))
    benchmark = benchmark_of(run)
    identity = _uuid(run, name)
    parts = (collection or benchmark.file, *name.split("/"))
    record: dict[str, Any] = {
        "schema_version": SCHEMA,
        "evaluation_id": one_line(f"{run.task}/{name}/{written}"),
        "retrieved_timestamp": written,
        **ended(run),
        "source_metadata": {
            "source_name": "lm-evaluation-harness" if "lm_eval" in run.made.versions else "trials",
            "source_type": "evaluation_run",
            "source_organization_name": replace_surrogates(sender.organization),
            "evaluator_relationship": _one_of("--relationship", sender.relationship, RELATIONSHIPS),
        },
        "eval_library": _library(run),
        "model_info": _model_info(run, name, developer, sender),
        "evaluation_results": results_of(summary, scope),
    }
    return Submission(
        record=record,
        folder="/".join(["data", *map(_component, parts)]),
        name=identity,
        model_id=name,
        evaluation_id=record["evaluation_id"],
    )


# -- the parts -----------------------------------------------------------------------------------


def _one_of(argument: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidInputError.of(argument, f"be one of {', '.join(allowed)}", value)
    return value


def _model(run: TaskRun, given: str | None, developer: str) -> tuple[str, str]:
    """Return the model's id and who made it."""
    if given is not None and hub_id(given) is None:
        raise InvalidInputError.of("--model-id", "be the model's id, as org/name", given)
    name = given or said_model(run)
    if name is not None:
        return name, developer or name.partition("/")[0]
    if not developer:
        rule = f"tell who made {run.model}, as org/name, since the run does not"
        raise InvalidInputError.of("--model-id", rule, "no name")
    return f"{slug(developer)}/{slug(run.model)}", developer


def _component(name: str) -> str:
    """Return a name as one folder of the datastore: a part of a hub id as it is, else a slug."""
    if hub_id(f"org/{name}") is not None and not is_reserved(name):
        return name
    plain = slug(name)
    return f"{plain}_" if is_reserved(plain) else plain


def _uuid(run: TaskRun, name: str) -> str:
    """Return a UUID of version 4 in form, the same for the same trials of the same model."""
    outcomes = run.outcomes
    content = {
        "model": name,
        "task": run.task,
        "metric": run.metric,
        "filter": run.filter,
        "counts": outcomes.counts.tolist(),
        "weights": outcomes.weights.tolist(),
        "ids": list(run.question_ids),
        "trials": None if run.trials is None else [one.tolist() for one in run.trials],
        "date": run.made.date,
        "settings": generation_settings(run),
    }
    digits = hash_json(content).partition(":")[2]
    return str(uuid.UUID(hex=digits, version=4))


def _library(run: TaskRun) -> dict[str, Any]:
    found = versions(run)
    harness = found.pop("lm_eval", None)
    return {
        "name": "lm_eval" if harness else "unknown",
        "version": harness or "unknown",
        "additional_details": found,
    }


def _model_info(run: TaskRun, name: str, developer: str, sender: Sender) -> dict[str, Any]:
    backend = run.made.backend
    if backend == "trials":
        backend = as_text(run.made.model_args.get("backend", backend))
    own = backend in _OWN or backend in _OWN_SIGNALS
    deployment = sender.deployment or ("self_deployed" if own else "unknown")
    engine = _ENGINES.get(backend.removesuffix("-signals"))
    version = run.made.versions.get(engine) if engine else None
    found: dict[str, Any] = {"name": name, "id": name, "developer": replace_surrogates(developer)}
    if engine:
        told = {} if version is None else {"version": as_text(version)}
        found["inference_engine"] = {"name": engine, **told}
    found["additional_details"] = {
        "deployment_type": _one_of("--deployment", deployment, DEPLOYMENTS),
        "model_availability": _one_of("--availability", sender.availability, AVAILABILITIES),
        **({"harness_backend": one_line(run.made.backend, 60)} if run.made.backend else {}),
        **model_settings(run),
    }
    return found
