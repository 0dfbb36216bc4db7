"""What `export every-eval-ever` writes, judged by the wheel `every-eval-ever` itself.

The wheel needs Python 3.12 and holds the schema, which is not part of this repository. Its own
environment is made here; this package is not installed there and only hands over files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from _support.environments import create_environment, installer, interpreter
from _support.hostile import NAMES
from _support.paths import REPOSITORY

from lm_eval_bayes.analysis.summary import summarise
from lm_eval_bayes.export.every_eval_ever import SCHEMA, Sender, submission
from lm_eval_bayes.export.every_eval_instances import InstancesFile
from lm_eval_bayes.export.files import write_files
from lm_eval_bayes.runs.task_run import Provenance, TaskRun
from lm_eval_bayes.stats.intervals import IntervalSpec

pytestmark = pytest.mark.slow


#: Runs in the wheel's environment: every error of every file, by both of its judges.
JUDGE = """
import glob, json, os, sys
from jsonschema import Draft7Validator
from every_eval_ever.schema import get_schema_version, schema_json
from every_eval_ever.validate import validate_file

os.chdir(sys.argv[1])
schemas = {
    ".json": Draft7Validator(schema_json()),
    ".jsonl": Draft7Validator(schema_json("instance_level_eval.schema.json")),
}
class Here:
    def __contains__(self, path):
        return os.path.isfile(path)
told, rows, paths = [], 0, sorted(glob.glob("data/*/*/*/*"))
for path in paths:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    suffix = os.path.splitext(path)[1]
    records = [json.loads(one) for one in (text.splitlines() if suffix == ".jsonl" else [text])]
    rows += len(records)
    for record in records:
        told += [f"{path}: {error.message}" for error in schemas[suffix].iter_errors(record)]
    from pathlib import Path
    report = validate_file(
        Path(path), repo_path=path, available_files=Here(), run_semantic_checks=True,
        read_repo_file=lambda name: open(name, encoding="utf-8").read(),
    )
    told += [f"{path}: {one}" for one in (*report.errors, *report.warnings)]
print(json.dumps({"version": get_schema_version(), "paths": paths, "rows": rows, "told": told}))
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """Judge the `data` of a folder; return the files, their records, and all that is wrong."""
    folder = tmp_path_factory.mktemp("wheel") / "venv"
    create_environment(folder, interpreter("3.12", "3.13"))
    python = folder / "bin" / "python"
    command = [*installer(python), f"every-eval-ever=={SCHEMA}", "jsonschema"]
    subprocess.run(command, timeout=1800, check=True)

    def look(data: Path):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        done = subprocess.run(
            [str(python), "-c", JUDGE, str(data)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["version"] == SCHEMA
        return found

    return look


def write(folder: Path, run: TaskRun, texts: bool = True, **more) -> None:
    summary = summarise(run, IntervalSpec(method="normal"))
    record = submission(summary, **more)
    rows = InstancesFile(summary, record, texts)

    def whole(output):
        with_rows = record.with_instances(rows.rows, rows.checksum)
        output.write(with_rows.to_json().encode("ascii"))

    write_files({folder / record.instances_path: rows.write, folder / record.path: whole})


@pytest.fixture
def call(tmp_path):
    """Run a module of this package in a folder of its own; return what it prints."""

    def run(*command, **env):
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1", **env}
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


RUN = ("lm_eval_bayes", "run", "--output_path", "out", "--log_samples", "--limit", "5")
EXPORT = ("lm_eval_bayes.cli.main", "export")


def test_real_runs_of_the_harness(judge, call, tmp_path):
    model = ["--model", "trials", "--model_args", "backend=biased_coin,store=s.sqlite,beta=2:3"]
    call(*RUN, *model, "--tasks", "demo_arithmetic_bayes,demo_arithmetic_rubric")
    told = call(
        *EXPORT, "every-eval-ever", "out", "-o", "here", "--instances", "--model-id", "org/coin"
    )
    assert told.count(": 40 records") == 2
    found = judge(tmp_path / "here")
    assert found["told"] == []
    assert len(found["paths"]) == 4
    assert found["rows"] == 2 + 2 * 5 * 8


def test_a_contest_goes_out_both_ways(judge, call, offline_hub, tmp_path):
    hub = pytest.importorskip("huggingface_hub", minversion="1.4")
    model = ["--model", "biased_coin", "--model_args", "beta=2:3"]
    call(*RUN, *model, "--tasks", "aime25_bayes", "--metadata", '{"bayes_n":2}', **offline_hub)
    call(*EXPORT, "hub", "out", "--model-id", "org/coin", "-o", "repository")
    text = (tmp_path / "repository/.eval_results/aime_2025.yaml").read_text(encoding="utf-8")
    (entry,) = hub.parse_eval_result_entries(yaml.safe_load(text))
    assert entry.dataset_id == "MathArena/aime_2025"
    assert entry.dataset_revision == "c94da77eb22bbd6439e62a323bec18493a421302"
    assert "avg@2, 5 of its 30 questions; " in entry.notes
    call(*EXPORT, "every-eval-ever", "out", "-o", "here", "--instances", "--model-id", "org/coin")
    found = judge(tmp_path / "here")
    assert found["told"] == []
    (path,) = (one for one in found["paths"] if one.endswith(".json"))
    record = json.loads((tmp_path / "here" / path).read_text(encoding="utf-8"))
    scores = {
        one["metric_config"]["metric_name"]: one["score_details"]["score"]
        for one in record["evaluation_results"]
    }
    assert 100 * scores["avg@2"] == pytest.approx(entry.value, abs=0.005)


def test_whatever_a_run_is_called(judge, tmp_path):
    made = Provenance(
        backend="vllm",
        model_args={name: name for name in NAMES} | {"dtype": NAMES[12]},
        generation_kwargs={name: name for name in NAMES} | {"temperature": 1, "top_p": None},
        date=1_769_853_600.0,
        versions={"lm_eval": NAMES[12], "vllm": NAMES[1]},
        dataset=NAMES[7],
        revision=NAMES[8],
        config={"test_split": NAMES[5], "doc_to_text": "\ud800" + NAMES[12]},
    )
    for name in NAMES:
        run = TaskRun.from_trials(
            name,
            name,
            [[0, 1, 1], [1] * 5],
            [name, "other"],
            answers=(("\ud800", None, name), (name,) * 5),
            questions=(name, "\x00"),
            filter=name,
            metric=name,
            provenance=made,
        )
        sender = Sender(organization=name, developer=name)
        write(tmp_path, run, collection=name, sender=sender)
    found = judge(tmp_path)
    assert found["told"] == []
    assert len(found["paths"]) == 2 * len(NAMES)


def test_rubrics_counts_of_one_and_known_benchmarks(judge, tmp_path):
    rubric = TaskRun.from_trials(
        "m", "essays", [[0, 2, 1], [1, 1, 0]], ["p", "q"], (-1.0, 0.5, 2.0)
    )
    single = TaskRun.from_trials("m", "aime25_bayes", [[1], [1]], ["p", "q"])
    for run in (rubric, single):
        write(tmp_path, run, texts=False, model_id="org/Model-1.5B")
    found = judge(tmp_path)
    assert found["told"] == []
    folders = {path.rpartition("/")[0] for path in found["paths"]}
    assert folders == {"data/essays/org/Model-1.5B", "data/aime_2025/org/Model-1.5B"}
