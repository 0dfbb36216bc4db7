"""Statistics of HELM, by the schema of its `PerInstanceStats` and `RunSpec`."""

import pytest
from _support.errors import refused
from _support.format_logs import helm_rows
from _support.tool_logs import outcomes_of, written

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import FORMATS
from lm_eval_bayes.runs.readers.tables import LogFile

RIGHT = {"id1": [1, 0], "id2": [1, 1], "id3": [0, 0]}
TASK = "mmlu:subject=anatomy,method=joint"


@pytest.fixture
def run(tmp_path):
    """A run folder, without the specification of the run."""
    folder = tmp_path / "v1" / f"{TASK},model=org_strong"
    folder.mkdir(parents=True)
    written(folder, helm_rows(RIGHT), "per_instance_stats.json")
    return folder


def test_instances_are_questions_and_train_trials_their_trials(run):
    for path in (run, run.parent, run / "per_instance_stats.json"):
        assert outcomes_of(path) == {"org_strong": RIGHT}
    saved = read_runs([run])
    assert (saved.tasks, saved.runs[0].metric, saved.runs[0].tokens) == ((TASK,), "exact_match", 42)
    assert "3 trials of perturbed instances" in saved.warnings[0]
    claims = [f.name for f in FORMATS if f.reader.is_mine(LogFile(run / "per_instance_stats.json"))]
    assert claims == ["HELM"]


def test_the_specification_names_the_model_and_its_settings(run):
    adapter = {"model": "org/strong", "temperature": 0.5, "max_tokens": 5}
    name = f"{TASK},model=org_strong,model_deployment=vllm_strong"
    written(run, {"name": name, "adapter_spec": adapter}, "run_spec.json")
    (read,) = read_runs([run]).runs
    assert (read.model, read.task) == ("org/strong", TASK)
    assert read.provenance.generation_kwargs == {"temperature": 0.5, "max_tokens": 5}


def test_another_statistic_is_chosen(run):
    assert outcomes_of(run, metric="quasi_exact_match") == {
        "org_strong": {id: [1, 1] for id in RIGHT}
    }
    rows = helm_rows(RIGHT)
    for row in rows:
        row["stats"] = [stat for stat in row["stats"] if stat["name"]["name"] != "exact_match"]
    written(run, rows, "per_instance_stats.json")
    with refused("metric", "choice"):
        read_runs([run])


def test_statistics_that_are_there_twice_are_refused(run):
    rows = helm_rows(RIGHT)
    written(run, [*rows, rows[0]], "per_instance_stats.json")
    with refused("RUN", "duplicate"):
        read_runs([run])
    assert outcomes_of(run, dedupe=True) == {"org_strong": RIGHT}
