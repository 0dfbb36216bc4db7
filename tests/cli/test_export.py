"""`lm-eval-bayes export`: what it prints, what it writes, how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from functools import partial

import pytest
import yaml
from _support import fake_hub
from _support.command_line import called, exported_table
from _support.paths import REPOSITORY
from _support.saved_runs import question, write_run

from lm_eval_bayes.export.hub import NEEDED
from lm_eval_bayes.runs.reader import read_runs

REVISION = "c94da77eb22bbd6439e62a323bec18493a421302"
AIME = {"dataset_path": "MathArena/aime_2025", "dataset_kwargs": {"revision": REVISION}}


@pytest.fixture
def lmeb():
    """Run `export`; return (exit code, standard output, standard error)."""
    return partial(called, "export")


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


def test_the_same_leaderboard_in_four_formats(lmeb, runs, tmp_path):
    both = (runs / "good", runs / "poor")
    code, output, _ = exported_table(".csv", *both, "--level", "0.9")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(output)))
    assert [(row["rank"], row["model"]) for row in rows] == [
        ("1", "org/good"),
        ("2", "'=poor|_model"),
    ]
    assert {row["level"] for row in rows} == {"0.9"}
    code, output, _ = exported_table(".json", *both, "--level", "0.9")
    (board,) = json.loads(output)["leaderboards"]
    assert [item["mu"] for item in board["places"]] == [float(row["mean"]) for row in rows]
    code, output, _ = exported_table(".md", *both)
    assert "| 2 | =poor\\|\\_model |" in output
    code, output, _ = exported_table(".tex", *both)
    assert r"2 & =poor\textbar{}\_model &" in output
    assert output.endswith("\\end{table}\n")
    target = tmp_path / "board.csv"
    code, output, _ = lmeb("table", *both, "-o", target)
    assert (code, output) == (0, f"{target}: 2 models on 1 task\n")
    assert target.read_text(encoding="utf-8").startswith("task,rank,model,mean,sd,low,high,")


def test_the_scope_reaches_the_numbers(runs):
    both = (runs / "good", runs / "poor")
    row = {}
    for scope in ("benchmark", "population"):
        _, output, _ = exported_table(".csv", *both, "--scope", scope)
        row[scope] = next(csv.DictReader(io.StringIO(output)))
        assert (row[scope]["scope"], row[scope]["interval"]) == (scope, "exact")
    assert float(row["population"]["sd"]) > float(row["benchmark"]["sd"])


def test_one_table_a_task(lmeb, runs):
    code, output, _ = exported_table(".md", runs / "good", runs / "sums")
    assert code == 0
    assert [line for line in output.splitlines() if line.startswith("#")] == [
        "### aime25\\_bayes",
        "### sums",
    ]
    _, output, _ = exported_table(".md", runs / "good", runs / "sums", "--task", "sums")
    assert "aime25" not in output


def test_a_file_that_is_there_stays_unless_told(lmeb, runs, tmp_path):
    target = tmp_path / "board.md"
    target.write_text("mine", encoding="utf-8")
    code, _, error = lmeb("table", runs / "good", "-o", target)
    assert code == 2
    assert error.startswith(
        "error: `--output` must be a new file, unless --overwrite is given; got "
    )
    assert target.read_text(encoding="utf-8") == "mine"
    assert lmeb("table", runs / "good", "-o", target, "--overwrite")[0] == 0
    assert target.read_text(encoding="utf-8").startswith("###")
    assert [path.name for path in tmp_path.iterdir()] == ["board.md"]


def test_what_is_read_is_not_replaced(lmeb, runs):
    messages = {
        ".json": "`--output` must be another file than those that the runs are read from",
        ".jsonl": "`--output` must end with .csv, .json, .md or .tex; got '.jsonl'",
    }
    for target in [file for file in (runs / "good").rglob("*") if file.is_file()]:
        before = target.read_bytes()
        code, _, error = lmeb("table", runs / "good", "-o", target, "--overwrite")
        assert (code, messages[target.suffix] in error) == (2, True)
        assert target.read_bytes() == before


def test_records_of_every_eval_ever_that_are_read_are_not_replaced(lmeb, runs, tmp_path):
    arguments = ("-o", tmp_path, "--instances", "--collection", "one")
    assert lmeb("every-eval-ever", runs / "good", *arguments)[0] == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    assert len(before) == 2
    (record,) = (path for path in before if path.suffix == ".json")
    code, _, error = lmeb("table", record, "-o", record, "--overwrite")
    assert (code, "must be another file than those that" in error) == (2, True)
    assert {path: path.read_bytes() for path in before} == before


def test_a_trial_store_is_never_replaced(lmeb, runs, tmp_path):
    from lm_eval_bayes.store.trial_store import TrialStore

    target = tmp_path / "trials.csv"
    TrialStore.open(target).close()
    before = target.read_bytes()
    code, _, error = lmeb("table", runs / "good", "-o", target, "--overwrite")
    assert (code, error.count("\n")) == (2, 1)
    assert "must not be a trial store" in error
    assert target.read_bytes() == before


@pytest.mark.parametrize(
    ("where", "message"),
    [("folder.csv", "is a folder"), ("a-file/board.csv", "lie in a folder")],
)
def test_a_place_that_cannot_be_written(lmeb, runs, tmp_path, where, message):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "a-file").write_text("", encoding="utf-8")
    code, _, error = lmeb("table", runs / "good", "-o", tmp_path / where, "--overwrite")
    assert (code, error.count("\n")) == (2, 1)
    assert message in error
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a-file", "folder.csv"]


def test_models_that_answered_different_questions(lmeb, runs, tmp_path):
    write(tmp_path / "other", "other", [1, 2, 3])
    target = tmp_path / "board.csv"
    code, _, error = lmeb("table", runs / "good", tmp_path / "other", "-o", target)
    assert code == 2
    assert error.splitlines()[-1].startswith("error: ")
    assert not target.exists()


# -- the hub -------------------------------------------------------------------------------------

hub_library = pytest.importorskip("huggingface_hub", minversion=NEEDED)


def read_back(path):
    (entry,) = hub_library.parse_eval_result_entries(
        yaml.safe_load(path.read_text(encoding="utf-8"))
    )
    return entry


def test_hub_writes_the_models_results(lmeb, runs, tmp_path):
    code, output, _ = lmeb("hub", runs / "good", "--model-id", "org/good", "-o", tmp_path)
    path = tmp_path / ".eval_results" / "aime_2025.yaml"
    assert (code, output) == (0, f"{path}: 85 on MathArena/aime_2025\n")
    entry = read_back(path)
    assert (entry.dataset_id, entry.dataset_revision) == ("MathArena/aime_2025", REVISION)
    assert entry.value == 100 * (4 + 4 + 3 + 4 + 2) / 20
    assert entry.notes.startswith("avg@4, 5 questions; 95% interval ")
    code, _, output = lmeb("hub", runs / "good", "--model-id", "org/good", "-o", tmp_path)
    assert code == 2
    assert "unless --overwrite is given" in output
    shown = lmeb(
        *("hub", runs / "good", "--model-id", "org/good", "-o", tmp_path, "--overwrite", "--json"),
        *("--value", "pass@2", "--scale", "share", "--task-id", "II", "--level", "0.8"),
    )
    (result,) = json.loads(shown[1])["results"]
    assert read_back(path).value == result["value"]
    assert result["value"] == round((1 + 1 + 1 + 1 + 5 / 6) / 5, 4)
    assert "80% interval" in result["notes"]
    assert "80% credible interval" in result["details"]
    assert result["task_id"] == "II"


def test_hub_writes_here_by_default(lmeb, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lmeb("hub", runs / "good", "--model-id", "org/good")[0] == 0
    assert read_back(tmp_path / ".eval_results" / "aime_2025.yaml").value == 85.0


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("good", "--model-id good", "`--model-id` must be a model of the hub, as org/name"),
        ("good", "--model-id org/..", "`--model-id` must be a model of the hub, as org/name"),
        ("good poor", "--model-id a/b", "`RUN` must be runs of one model"),
        ("sums", "--model-id a/b", "`--dataset` must name the hub's dataset of sums"),
        ("good sums", "--model-id a/b --dataset c/d", "`--dataset` must be of one task; choose"),
        ("good", "--model-id a/b --value pass@99", "`--value` must be a number of"),
        ("good", "--model-id a/b --source-name x", "`--source-name` must be left out"),
        ("good", "--model-id a/b --level 2", "`--level` must"),
        ("nowhere", "--model-id a/b", "`RUN` must"),
    ],
)
def test_hub_ends_in_one_sentence(lmeb, runs, tmp_path, names, options, message):
    given = [runs / name for name in names.split()]
    code, printed, error = lmeb("hub", *given, *options.split(), "-o", tmp_path / "new")
    assert (code, printed) == (2, "")
    assert error.splitlines()[-1].startswith(f"error: {message}")
    assert not (tmp_path / "new").exists()


def test_hub_pushes_only_when_asked(lmeb, runs, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", fake_hub.TOKEN)
    monkeypatch.chdir(tmp_path)
    given = ("hub", runs / "good", "--model-id", fake_hub.MODEL)
    with fake_hub.serving() as (hub, address):
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert lmeb(*given, "-o", "here")[0] == 0
        assert hub.requests == []
        code, output, warned = lmeb(*given, "--push")
        assert (code, output) == (0, f"pull request: {address}/{fake_hub.MODEL}/discussions/7\n")
        assert "the run was of org/good, and is exported as org/model" in warned
        local = tmp_path / "here" / ".eval_results" / "aime_2025.yaml"
        assert hub.files_sent() == {
            ".eval_results/aime_2025.yaml": local.read_text(encoding="utf-8")
        }
        assert [path.name for path in tmp_path.iterdir()] == ["here"]
        hub.failing["whoami"] = (401, "{}")
        code, output, warned = lmeb(*given, "--push", "-o", "there")
        assert (code, output) == (2, "")
        assert warned.splitlines()[-1].startswith("error: the token was not checked: ")
        assert not (tmp_path / "there").exists()
        getattr(hub_library, "close_session", lambda: None)()


# -- Every Eval Ever -----------------------------------------------------------------------------


def test_every_eval_ever_to_standard_output(lmeb, runs):
    code, output, _ = lmeb("every-eval-ever", runs / "good")
    assert code == 0
    record = json.loads(output)
    assert record["schema_version"] == "0.3.0"
    assert record["model_info"]["id"] == "org/good"
    names = [
        evaluation_result["metric_config"]["metric_name"]
        for evaluation_result in record["evaluation_results"]
    ]
    assert names[:4] == ["hbayes@4", "hbayes@4_population", "bayes@4", "avg@4"]
    assert "detailed_evaluation_results" not in record


@pytest.mark.parametrize(
    ("scope", "name"), [("benchmark", "hbayes@4"), ("population", "hbayes@4_population")]
)
def test_a_record_in_one_scope(lmeb, runs, scope, name):
    both, first = (
        json.loads(lmeb("every-eval-ever", runs / "good", *more)[1])["evaluation_results"]
        for more in ((), ("--scope", scope))
    )
    names = [result["metric_config"]["metric_name"] for result in first]
    assert names[:3] == [name, "bayes@4", "avg@4"]
    for result in [*first[1:], *both]:  # the ids of the questions stand in the first one
        result["source_data"].pop("sample_ids", None)
    assert first[0]["source_data"].pop("sample_ids")
    assert first == [r for r in both if r["metric_config"]["metric_name"] in names]
    assert len(both) == len(first) + 1


def test_every_eval_ever_to_a_folder_with_instances(lmeb, runs, tmp_path):
    code, output, _ = lmeb(
        *("every-eval-ever", runs / "good", runs / "sums", "-o", tmp_path, "--instances"),
        *("--organization", "Us", "--relationship", "third_party", "--collection", "our board"),
    )
    assert code == 0
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
        assert f"{tmp_path / about['file_path']}: {len(rows)} records" in output
    code, _, output = lmeb(
        *("every-eval-ever", runs / "good", "-o", tmp_path, "--collection", "our board")
    )
    assert code == 2
    assert "unless --overwrite is given" in output
    again = ("every-eval-ever", runs / "good", "-o", tmp_path / "b", "--instances", "--no-texts")
    assert lmeb(*again)[0] == 0
    (rows,) = (tmp_path / "b").rglob("*_samples.jsonl")
    assert "boxed" not in rows.read_text(encoding="utf-8")


def test_counts_have_no_texts_to_give(lmeb, tmp_path):
    counts = tmp_path / "coin.csv"
    counts.write_text("id,c,n\np,3,8\nq,8,8\n", encoding="utf-8")
    expected = ("every-eval-ever", counts, "--model-id", "org/coin")
    code, output, _ = lmeb(*expected)
    assert code == 0
    score = {
        evaluation_result["metric_config"]["metric_name"]: evaluation_result["score_details"][
            "score"
        ]
        for evaluation_result in json.loads(output)["evaluation_results"]
    }
    assert score["avg@8"] == pytest.approx(11 / 16)
    code, _, output = lmeb(*expected, "--instances", "-o", tmp_path / "new")
    assert code == 2
    assert "must have single trials of outcomes, not only counts" in output
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["poor"], "`--model-id` must name the developer of =poor|_model, as org/name"),
        (["good", "sums"], "`RUN` must be one run"),
        (["good", "--instances"], "`--instances` must be given with a folder"),
        (
            ["good", "poor", "--model-id=a/b"],
            "`--model-id` must be org/good=org/name, for each of several models once",
        ),
        (["good", "poor", "--developer=a"], "`--developer` must be of one model; --model-id MODEL"),
        (
            ["good", "--model-id=a/b c"],
            "`--model-id` must be the id of a model, as org/name, without",
        ),
        (["good", "--model-id=b"], "`--model-id` must be the model's id, as org/name"),
        (["good", "--metric=nothing", "--task=nothing"], "`RUN` must hold task nothing"),
    ],
)
def test_every_eval_ever_ends_in_one_sentence(lmeb, runs, arguments, message):
    given = [argument if argument.startswith("-") else runs / argument for argument in arguments]
    code, printed, error = lmeb("every-eval-ever", *given)
    assert (code, printed) == (2, "")
    assert error.splitlines()[-1].startswith(f"error: {message}")


def test_models_of_several_developers_are_exported_and_read_again(lmeb, tmp_path):
    rows = [("A", "q", 1), ("A", "q", 0), ("A", "r", 1), ("b=c", "q", 0), ("b=c", "r", 1)]
    lines = ["model,question,score", *(",".join(map(str, row)) for row in rows)]
    table, folder = tmp_path / "board.csv", tmp_path / "records"
    table.write_text("\n".join(lines) + "\n")
    given = ("every-eval-ever", table, "-o", folder, "--instances")
    code, _, error = lmeb(*given, "--model-id", "A=org/a", "--model-id", "A=org/b")
    assert (code, "A=org/name, for each of several models once" in error) == (2, True)
    code, _, error = lmeb(*given, "--model-id", "A=org/a")
    assert (code, "of several models: b=c=org/name" in error) == (2, True)
    code, _, error = lmeb(*given, "--model-id", "A=org/a", "--model-id", "b=c=lab/b")
    assert code == 0, error
    saved = read_runs([folder])
    assert {run.model: run.n_trials for run in saved.runs} == {"org/a": 3, "lab/b": 2}
    assert {run.metric for run in saved.runs} == {"avg@N"}  # of N = 1 and of 1 to 2
    assert not any("different metrics" in warning for warning in saved.warnings)


def test_a_submission_says_that_its_log_is_cut_off(lmeb, runs, tmp_path):
    cut = tmp_path / "cut"
    shutil.copytree(runs / "good", cut)
    (samples,) = cut.glob("samples_*.jsonl")
    samples.write_text(samples.read_text(encoding="utf-8")[:-30], encoding="utf-8")
    sentence = f"{samples.name} ends in the middle of line 5; that line was left out"
    code, _, warned = lmeb("hub", cut, "--model-id", "org/good", "-o", tmp_path)
    assert (code, f"warning: {cut}/{sentence}" in warned) == (0, True)
    text = (tmp_path / ".eval_results" / "aime_2025.yaml").read_text(encoding="utf-8")
    (entry,) = yaml.safe_load(text)
    assert sentence in entry["notes"]
    assert str(tmp_path) not in text
    code, printed, _ = lmeb("every-eval-ever", cut)
    assert (code, str(tmp_path) in printed) == (0, False)
    for result in json.loads(printed)["evaluation_results"]:
        assert result["score_details"]["details"]["warnings"] == sentence
    complete = json.loads(lmeb("every-eval-ever", runs / "good")[1])
    for result in complete["evaluation_results"]:
        assert "warnings" not in result["score_details"]["details"]


# -- all of them ---------------------------------------------------------------------------------

COMMANDS = ("hub", "every-eval-ever", "table")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_two_examples(lmeb, command):
    code, output, _ = lmeb(command, "--help")
    assert code == 0
    examples = output.split("Examples:")[1].split("Arguments:")[0].strip().splitlines()
    assert len(examples) == 2
    assert all(line.strip().startswith(f"lm-eval-bayes export {command} ") for line in examples)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_run_ends_in_one_sentence(lmeb, tmp_path, command):
    empty = tmp_path / "empty"
    empty.mkdir()
    broken = tmp_path / "samples_sums_2026-01-31T10-00-00.000000.jsonl"
    broken.write_text('{"doc_id": 0, "doc', encoding="utf-8")
    more = ["--model-id", "a/b"] if command == "hub" else []
    target = tmp_path / "new" if command in ("hub", "every-eval-ever") else tmp_path / "new.md"
    for path in (tmp_path / "missing", empty, broken):
        code, printed, error = lmeb(command, path, *more, "-o", target)
        assert (code, printed) == (2, "")
        assert error.count("error: ") == 1
        assert error.splitlines()[-1].startswith("error: `RUN` must ")
        assert not target.exists()


def test_the_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from lm_eval_bayes.cli.commands import export\n"
        "heavy = ('huggingface_hub', 'lm_eval', 'torch', 'yaml', 'jinja2', 'rich.table')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr
