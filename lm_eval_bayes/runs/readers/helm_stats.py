"""Statistics of HELM: `per_instance_stats.json` of a run, or a folder of runs.

An instance is a question, a train trial a trial of it. Instances that were perturbed are left out,
as in HELM's own mean. The model and the task are those of `run_spec.json` beside the file, else of
the name of the folder, as in `mmlu:subject=anatomy,model=openai_gpt-4`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.text import first_names, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import lookup, mapping, mappings
from lm_eval_bayes.runs.readers.json_files import json_text, load_json, name_of
from lm_eval_bayes.runs.readers.protocol import FileContents, Query
from lm_eval_bayes.runs.readers.tool_log import ToolLog, Trial, call_settings, matches
from lm_eval_bayes.runs.task_run import Provenance

#: How the file begins, and the metric that counts unless the user names another.
_BEGINNING = re.compile(rb'\s*\[\s*\{\s*"instance_id"\s*:')
_METRIC = "exact_match"


#: Whether a file is one of statistics.
is_mine = matches(_BEGINNING)


def read(file: Path, query: Query) -> FileContents:
    """Read the statistics of a run.

    Raises
    ------
    InvalidInputError
        If the file is broken, or has no exact matches and the query names no other metric.
    """
    spec_file = file.with_name("run_spec.json")
    spec = mapping(load_json(spec_file)) if spec_file.is_file() else {}
    adapter = mapping(spec, "adapter_spec")
    task, _, arguments = (name_of(spec.get("name")) or file.absolute().parent.name).partition(":")
    parts = arguments.split(",")
    named = next((p.removeprefix("model=") for p in parts if p.startswith("model=")), "")
    others = ",".join(part for part in parts if part and not part.startswith("model"))
    rows = mappings(load_json(file))
    common: dict[str, Any] = {
        "model": name_of(adapter.get("model")) or named,
        "task": f"{task}:{others}" if others else task,
        "run": hash_text(json_text(rows)),
        "provenance": Provenance(generation_kwargs=call_settings(adapter)),
    }
    unchanged = [row for row in rows if not row.get("perturbation")]
    log = ToolLog(file, query, lambda row: [_trial(row, common)], lambda query: unchanged)
    log.texts = None
    names = dict.fromkeys(name for trial in log.trials for name in trial.scores)
    if names and query.metric is None and _METRIC not in names:
        rule = f"be a metric of {file.name}, which has no {_METRIC}: {first_names(list(names), 9)}"
        raise InvalidInputError.of("metric", "choice", rule, None)
    if len(unchanged) < len(rows):
        left_out = plural(len(rows) - len(unchanged), "trial")
        log.warnings.append(f"{file}: {left_out} of perturbed instances left out")
    return log.contents("HELM")


def _trial(row: Mapping[str, Any], common: Mapping[str, Any]) -> Trial:
    stats = mappings(row.get("stats"))
    means = {name_of(lookup(stat, "name", "name")): stat.get("mean") for stat in stats}
    first = {name: means[name] for name in means if name == _METRIC}
    return Trial(
        **common,
        question=name_of(row.get("instance_id")),
        label=row.get("train_trial_index"),
        scores=first | means,
        tokens=means.get("num_output_tokens", means.get("num_completion_tokens")),
        time=means.get("inference_runtime"),
    )
