"""`lm-eval-bayes export`: what it prints, what it writes, how it ends."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter
from functools import partial

import pytest
import yaml
from _support.command_line import answer, called, exported_table, refusal
from _support.saved_runs import question, write_run

from lm_eval_bayes.export.hub import NEEDED

REVISION = "c94da77eb22bbd6439e62a323bec18493a421302"
AIME = {"dataset_path": "MathArena/aime_2025", "dataset_kwargs": {"revision": REVISION}}


lmeb = partial(called, "export")


def write(folder, model, right, task="aime25_bayes", n=4, config=AIME):
    questions = [
        question([{"text": f"\\boxed{{{2 * q}}}", "outcome": int(i < c)} for i in range(n)], q)
        for q, c in enumerate(right)
    ]
    return write_run(folder, model, questions, task=task, config=config)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three models on one task, and one of them on another task."""
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "good", "org/good", [4, 4, 3, 4, 2])
    write(folder / "poor", "=poor|_model", [0, 1, 0, 0, 1])
    write(folder / "sums", "org/good", [4, 0, 2], task="sums", config={})
    return folder


# -- tables --------------------------------------------------------------------------------------


def test_the_same_leaderboard_in_csv_and_json(runs):
    both = (runs / "good", runs / "poor", "--level", "0.9", "--scope", "population")
    code, output, _ = exported_table(".csv", *both)
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(output)))
    assert [(row["rank"], row["model"]) for row in rows] == [
        ("1", "org/good"),
        ("2", "'=poor|_model"),
    ]
    assert {(row["level"], row["scope"]) for row in rows} == {("0.9", "population")}
    (board,) = json.loads(exported_table(".json", *both)[1])["leaderboards"]
    assert [item["mu"] for item in board["places"]] == [float(row["mean"]) for row in rows]


def test_a_file_that_is_there_stays_unless_told(runs, tmp_path):
    target = tmp_path / "board.md"
    target.write_text("mine", encoding="utf-8")
    table = ("table", runs / "good", "-o", target)
    assert refusal("export", *table) == ("--output", "path")
    assert target.read_text(encoding="utf-8") == "mine"
    assert lmeb(*table, "--overwrite")[0] == 0
    assert target.read_text(encoding="utf-8").startswith("###")
    assert [path.name for path in tmp_path.iterdir()] == ["board.md"]


def test_what_is_read_is_not_replaced(runs):
    for target in [file for file in (runs / "good").rglob("*") if file.is_file()]:
        before = target.read_bytes()
        table = ("table", runs / "good", "-o", target, "--overwrite")
        assert refusal("export", *table)[0] == "--output"
        assert target.read_bytes() == before


# -- the hub -------------------------------------------------------------------------------------

hub_library = pytest.importorskip("huggingface_hub", minversion=NEEDED)


def read_back(path):
    (entry,) = hub_library.parse_eval_result_entries(
        yaml.safe_load(path.read_text(encoding="utf-8"))
    )
    return entry


def test_hub_writes_the_models_results(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub = ("hub", runs / "good", "--model-id", "org/good")
    assert lmeb(*hub)[0] == 0
    path = tmp_path / ".eval_results" / "aime_2025.yaml"
    entry = read_back(path)
    assert (entry.dataset_id, entry.dataset_revision) == ("MathArena/aime_2025", REVISION)
    assert entry.value == 100 * (4 + 4 + 3 + 4 + 2) / 20
    assert refusal("export", *hub, "-o", tmp_path)[1] == "path"
    content = answer(
        *("export", *hub, "-o", tmp_path, "--overwrite", "--value", "pass@2"),
        *("--scale", "share", "--task-id", "II", "--level", "0.8"),
    )
    (result,) = content["results"]
    assert read_back(path).value == result["value"]
    assert result["value"] == round((1 + 1 + 1 + 1 + 5 / 6) / 5, 4)
    assert "80%" in result["notes"]
    assert result["task_id"] == "II"


# -- Every Eval Ever -----------------------------------------------------------------------------


def exported_record(folder, *arguments):
    """Return the only record of Every Eval Ever of runs, as text."""
    code, _, error = lmeb("every-eval-ever", *arguments, "-o", folder)
    assert code == 0, error
    (file,) = folder.rglob("*.json")
    return file.read_text(encoding="utf-8")


def test_a_record_in_one_scope(runs, tmp_path):
    complete, of_scope = (
        json.loads(exported_record(tmp_path / str(len(more)), runs / "good", *more))
        for more in ((), ("--scope", "population"))
    )
    assert complete["model_info"]["id"] == "org/good"
    assert "detailed_evaluation_results" not in complete
    both, first = complete["evaluation_results"], of_scope["evaluation_results"]
    names = [result["metric_config"]["metric_name"] for result in first]
    assert names[:3] == ["hbayes@4_population", "bayes@4", "avg@4"]
    for result in [*first[1:], *both]:  # the ids of the questions stand in the first one
        result["source_data"].pop("sample_ids", None)
    assert first[0]["source_data"].pop("sample_ids")
    assert first == [r for r in both if r["metric_config"]["metric_name"] in names]
    assert len(both) == len(first) + 1


def test_every_eval_ever_to_a_folder_with_instances(runs, tmp_path):
    export = ("every-eval-ever", runs / "good", runs / "sums", "-o", tmp_path, "--instances")
    source = ("--organization", "Us", "--relationship", "third_party", "--collection", "our board")
    assert lmeb(*export, *source)[0] == 0
    records = sorted(tmp_path.glob("data/our_board-*/org/good/*[0-9a-f].json"))
    assert len(records) == 2
    for path in records:
        record = json.loads(path.read_text(encoding="utf-8"))
        assert record["source_metadata"]["source_organization_name"] == "Us"
        about = record["detailed_evaluation_results"]
        rows = (tmp_path / about["file_path"]).read_text(encoding="utf-8").splitlines()
        assert len(rows) == about["total_rows"]
        assert json.loads(rows[0])["evaluation_id"] == record["evaluation_id"]
        assert json.loads(rows[0])["output"]["raw"] == ["\\boxed{0}"]
    assert refusal("export", *export, *source)[1] == "path"
    again = ("every-eval-ever", runs / "good", "-o", tmp_path / "b", "--instances", "--no-texts")
    assert lmeb(*again)[0] == 0
    (rows,) = (tmp_path / "b").rglob("*_samples.jsonl")
    assert "boxed" not in rows.read_text(encoding="utf-8")


def test_models_of_several_developers_are_exported(tmp_path):
    rows = [("A", "q", 1), ("A", "q", 0), ("A", "r", 1), ("b=c", "q", 0), ("b=c", "r", 1)]
    lines = ["model,question,score", *(",".join(map(str, row)) for row in rows)]
    table, folder = tmp_path / "board.csv", tmp_path / "records"
    table.write_text("\n".join(lines) + "\n")
    export = ("every-eval-ever", table, "-o", folder, "--instances", "--model-id", "A=org/a")
    assert refusal("export", *export)[0] == "--model-id"
    assert refusal("export", *export, "--model-id", "A=org/b") == ("--model-id", "format")
    code, _, error = lmeb(*export, "--model-id", "b=c=lab/b")
    assert code == 0, error
    records = [line for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines()]
    models = Counter(json.loads(line)["model_id"] for line in records)
    assert models == {"org/a": 3, "lab/b": 2}


def test_a_submission_says_that_its_log_is_cut_off(runs, tmp_path):
    cut = tmp_path / "cut"
    shutil.copytree(runs / "good", cut)
    (samples,) = cut.glob("samples_*.jsonl")
    samples.write_text(samples.read_text(encoding="utf-8")[:-30], encoding="utf-8")
    assert lmeb("hub", cut, "--model-id", "org/good", "-o", tmp_path)[0] == 0
    text = (tmp_path / ".eval_results" / "aime_2025.yaml").read_text(encoding="utf-8")
    (entry,) = yaml.safe_load(text)
    assert samples.name in entry["notes"]
    assert str(tmp_path) not in text
    printed = exported_record(tmp_path / "records", cut)
    assert str(tmp_path) not in printed
    for result in json.loads(printed)["evaluation_results"]:
        assert samples.name in result["score_details"]["details"]["warnings"]


def test_tables_submissions_and_commands_name_the_protocol(tmp_path):
    label = "custom (hariri-2026 but for max_gen_toks)"
    protocol = {"name": "custom", "prompt": "hariri-2026", "differs_in": ["max_gen_toks"]}
    metadata = {"bayes": {"weights": [0, 1]}, "lm_eval_bayes": {"protocol": protocol}}
    for model, right in (("good", [4, 3, 4]), ("poor", [0, 1, 1])):
        config = {**AIME, "metadata": metadata}
        write(tmp_path / "runs" / model, f"org/{model}", right, config=config)
    runs = sorted((tmp_path / "runs").iterdir())
    printed = {command: called(command, *runs)[1] for command in ("summary", "rank", "compare")}
    assert all(label in text for text in printed.values())
    assert answer("summary", *runs)["tasks"][0]["protocol"] == label
    _, table, _ = exported_table(".csv", *runs)
    assert [row["protocol"] for row in csv.DictReader(io.StringIO(table))] == [label, label]
    assert (
        "Protocol: custom (hariri-2026 but for max\\_gen\\_toks)."
        in (exported_table(".md", *runs)[1])
    )
    record = json.loads(exported_record(tmp_path / "records", runs[0]))
    config = record["evaluation_results"][0]["generation_config"]
    assert config["additional_details"]["protocol"] == label
    assert lmeb("hub", runs[0], "--model-id", "org/good", "-o", tmp_path)[0] == 0
    assert label in (tmp_path / ".eval_results" / "aime_2025.yaml").read_text().replace("\n", " ")
