"""The example of a community leaderboard: submissions in, one page out."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml
from _support.paths import REPOSITORY

import lm_eval_bayes as leb
from lm_eval_bayes.analysis.summary import summarise
from lm_eval_bayes.export.every_eval_ever import submission
from lm_eval_bayes.export.every_eval_instances import InstancesFile
from lm_eval_bayes.export.files import write_files
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.intervals import IntervalSpec

EXAMPLE = REPOSITORY / "examples" / "leaderboard"
IDS = [f"aime-2025-II-{i:02d}" for i in range(1, 16)]


def build(folder):
    """Run the script; return (exit code, standard output, standard error)."""
    done = subprocess.run(
        [sys.executable, str(folder / "build_page.py")],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def outcomes_of(name):
    lines = (EXAMPLE / "submissions" / name / "trials.csv").read_text(encoding="utf-8").split()
    return np.array([[int(cell) for cell in line.split(",")[1:]] for line in lines[1:]])


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """A copy with submissions of every kind, good and bad, and the page that came of them."""
    folder = tmp_path_factory.mktemp("board") / "leaderboard"
    shutil.copytree(EXAMPLE, folder)
    sent = folder / "submissions"

    def describe(name, text):
        (sent / name).mkdir()
        (sent / name / "submission.yaml").write_text(text, encoding="utf-8")
        return sent / name

    hostile = "<b>evil|</b> [x](http://x.example)"
    position = describe("counted", f"model: '{hostile}'\nlink: 'javascript:alert(1)'\n")
    rows = [f"{name},{i % 5},8" for i, name in enumerate(IDS)]
    (position / "counts.csv").write_text("\n".join(["id,c,n", *rows]) + "\n", encoding="utf-8")
    position = describe("records", "model: from-records\nlink: https://example.org/a\n")
    run = TaskRun.from_trials("m", "t", [[1, 0, 1, 1, 0, 1]] * 15, IDS)
    summary = summarise(run, IntervalSpec(method="normal"))
    record = submission(summary, model_id="org/m")
    instances = InstancesFile(summary, record, texts=False)
    write_files({position / record.instances_path: instances.write})
    # from here on: none of these counts
    position = describe("few", "model: few\n")
    few = "\n".join(["id,c,n", *(f"{name},1,2" for name in IDS)])
    (position / "counts.csv").write_text(few, encoding="utf-8")
    position = describe("others", "model: others\n")
    (position / "counts.csv").write_text("id,c,n\nelsewhere,1,4\n", encoding="utf-8")
    describe("nothing", "model: nothing\n")
    describe("unnamed", "link: https://example.org\n")
    describe("code", "model: !!python/object/apply:os.system ['touch pwned']\n")
    position = describe("broken", "model: broken\n")
    (position / "m_samples.jsonl").write_text('{"evaluation": {', encoding="utf-8")
    position = describe("link", "model: link\n")
    (position / "counts.csv").symlink_to("/etc/passwd")
    shutil.copytree(sent / "gpt-4o", sent / "zz-again")
    code, message, left_out = build(folder)
    assert code == 0, left_out
    return folder, message, left_out


LEFT_OUT = {"few", "others", "nothing", "unnamed", "code", "broken", "link", "zz-again"}


def test_the_page_ranks_as_the_kernels_do(board):
    folder, message, _ = board
    assert "8 models, 8 submissions left out" in message
    result = json.loads((folder / "page" / "leaderboard.json").read_text(encoding="utf-8"))
    places = {item["model"]: item for item in result["leaderboards"][0]["places"]}
    assert len(places) == 8
    for folder_name, model in (("o3-mini-high", "o3-mini (high)"), ("gpt-4o", "gpt-4o")):
        matrix = leb.Outcomes.from_matrix(outcomes_of(folder_name))
        assert places[model]["mu"] == leb.hbayes_at_n(matrix).mu
    even = leb.Outcomes.from_matrix([[1, 0, 1, 1, 0, 1]] * 15)
    assert places["from-records"]["mu"] == leb.hbayes_at_n(even).mu
    assert places["from-records"]["n_range"] == [6, 6]
    page = (folder / "page" / "README.md").read_text(encoding="utf-8")
    best = next(iter(places))
    assert page.index(f"| 1 | {best} |") < page.index("## P(row scores more than column)")
    assert (folder / "page" / "leaderboard.csv").read_text(encoding="utf-8").count("\n") == 9


def test_what_does_not_count_is_named_and_harms_nothing(board):
    folder, _, message = board
    named = {line.split(": ")[1] for line in message.splitlines() if line.startswith("left out: ")}
    assert named == LEFT_OUT
    page = (folder / "page" / "README.md").read_text(encoding="utf-8")
    foot = page.split("## Left out")[1]
    assert all(f"- `{name}`: " in foot for name in LEFT_OUT)
    assert "every question needs 4 trials; one has 2" in foot
    assert "is a link" in foot
    assert not list(folder.rglob("pwned"))


def test_what_strangers_wrote_is_only_text(board):
    folder, _, _ = board
    page = (folder / "page" / "README.md").read_text(encoding="utf-8")
    assert "javascript" not in page
    assert "<b>" not in page.replace("\\<b\\>", "")
    assert "\\<b\\>evil\\|\\</b\\> \\[x\\](http\\://x.example)" in page
    assert "<https://example.org/a>" in page


def test_a_check_writes_nothing_and_says_so(board, monkeypatch, capsys):
    folder, _, _ = board
    shutil.rmtree(folder / "page")
    spec = importlib.util.spec_from_file_location("build_page", folder / "build_page.py")
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "build_page", script)
    spec.loader.exec_module(script)

    def main(*options):
        monkeypatch.setattr(sys, "argv", ["build_page.py", *options])
        code, message = script.main(), capsys.readouterr()
        return code, message.out, message.err

    assert main("--check")[:2] == (1, "8 submissions count, 8 do not\n")
    assert not (folder / "page").exists()
    for name in LEFT_OUT:
        shutil.rmtree(folder / "submissions" / name)
    assert main("--check") == (0, "8 submissions count, 0 do not\n", "")
    questions = folder / "questions.txt"
    questions.write_text("\n".join(IDS[:-1]), encoding="utf-8")
    with (folder / "leaderboard.yaml").open("a", encoding="utf-8") as config:
        config.write("questions: questions.txt\n")
    code, _, message = main()
    assert code == 1
    assert "1 question is missing or not of this leaderboard, such as aime-2025-II-15" in message
    assert not (folder / "page").exists()


def test_the_recipe_lets_no_pull_request_write():
    recipe = yaml.safe_load((EXAMPLE / "github_workflow.yml").read_text(encoding="utf-8"))
    # YAML 1.1 reads the key `on` as true
    events = recipe[True]
    assert {"schedule", "push", "pull_request"} <= set(events)
    assert "pull_request_target" not in events
    assert recipe["permissions"] == {"contents": "read"}
    check, page = recipe["jobs"]["check"], recipe["jobs"]["page"]
    assert "permissions" not in check
    assert check["if"] == "github.event_name == 'pull_request'"
    assert page["if"] == "github.event_name != 'pull_request'"
    scripts = [step["run"] for job in (check, page) for step in job["steps"] if "run" in step]
    assert not any("${{" in script for script in scripts)
    assert "python build_page.py --check" in scripts
    assert "python build_page.py" in scripts
