"""The example of a community leaderboard: submissions in, one page out, pull requests checked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from _support.community_board import EXAMPLE, build, copy_of_the_example
from _support.paths import REPOSITORY

import lm_eval_bayes as leb
from lm_eval_bayes.analysis.summary import summarise
from lm_eval_bayes.export.every_eval_ever import submission
from lm_eval_bayes.export.every_eval_instances import InstancesFile
from lm_eval_bayes.export.files import write_files
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.intervals import IntervalSpec

IDS = [f"aime-2025-II-{i:02d}" for i in range(1, 16)]


def send(board, name, model=None, owner="somebody", counts=None, more=""):
    """Write a submission of counts."""
    folder = board / "submissions" / name
    folder.mkdir(exist_ok=True)
    about = f"model: {model or name}\nowner: {owner}\n{more}"
    (folder / "submission.yaml").write_text(about, encoding="utf-8")
    rows = [f"{id},{c},{n}" for id, (c, n) in zip(IDS, counts or [(1, 4)] * 15, strict=True)]
    (folder / "counts.csv").write_text("\n".join(["id,c,n", *rows]) + "\n", encoding="utf-8")
    return folder


def outcomes_of(name):
    lines = (EXAMPLE / "submissions" / name / "trials.csv").read_text(encoding="utf-8").split()
    return np.array([[int(cell) for cell in line.split(",")[1:]] for line in lines[1:]])


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """A copy with two further submissions and four that do not count, and its page."""
    folder = copy_of_the_example(tmp_path_factory.mktemp("board") / "leaderboard")
    sender = "submitted_by: '<b>evil|</b> [x](http://x.example)'\n"
    send(folder, "counted", counts=[(i % 5, 8) for i in range(15)], more=sender)
    records = send(folder, "records", "from-records", more="link: https://example.org/a\n")
    (records / "counts.csv").unlink()
    run = TaskRun.from_trials("m", "t", [[1, 0, 1, 1, 0, 1]] * 15, IDS)
    summary = summarise(run, IntervalSpec(method="normal"))
    record = submission(summary, model_id="org/m")
    instances = InstancesFile(summary, record, texts=False)
    write_files({records / record.instances_path: instances.write})
    # from here on: none of these counts
    send(folder, "few", counts=[(1, 2)] * 15)
    (send(folder, "others") / "counts.csv").write_text("id,c,n\nelsewhere,1,4\n")
    (send(folder, "nothing") / "counts.csv").unlink()
    shutil.copytree(folder / "submissions" / "gpt-4o", folder / "submissions" / "zz-again")
    code, message, left_out = build(folder)
    assert code == 0, left_out
    return folder, message, left_out


LEFT_OUT = {"few", "others", "nothing", "zz-again"}


def test_the_page_ranks_as_the_kernels_do(board):
    folder, message, _ = board
    assert "8 models, 4 submissions left out" in message
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
    assert page.index(f"| {best} | 1 |") < page.index("## P(row scores more than column)")
    assert (folder / "page" / "leaderboard.csv").read_text(encoding="utf-8").count("\n") == 9


def test_what_does_not_count_is_named_and_harms_nothing(board):
    folder, _, message = board
    named = {line.split(": ")[1] for line in message.splitlines() if line.startswith("left out: ")}
    assert named == LEFT_OUT
    page = (folder / "page" / "README.md").read_text(encoding="utf-8")
    foot = page.split("## Left out")[1]
    assert all(f"- {name}: " in foot for name in LEFT_OUT)
    assert "every question must have 4 to 256 trials; one has 2" in foot


def test_what_strangers_wrote_is_only_text(board):
    folder, _, _ = board
    page = (folder / "page" / "README.md").read_text(encoding="utf-8")
    assert "<b>" not in page.replace("\\<b\\>", "")
    assert "\\<b\\>evil\\|\\</b\\> \\[x\\](http\\://x.example)" in page
    assert "<https://example.org/a>" in page


def test_nothing_tells_where_the_leaderboard_lies(board):
    folder, message, left_out = board
    files = [path.read_text(encoding="utf-8") for path in (folder / "page").iterdir()]
    assert len(files) == 3
    for text in (*files, message, left_out):
        assert str(folder) not in text
        assert folder.parent.name not in text


def test_owners_are_recorded_when_a_folder_first_counts(board):
    folder, _, _ = board
    before = yaml.safe_load((EXAMPLE / "owners.yaml").read_text(encoding="utf-8"))
    after = yaml.safe_load((folder / "owners.yaml").read_text(encoding="utf-8"))
    assert set(before) == {path.name for path in (EXAMPLE / "submissions").iterdir()}
    assert after == before | {
        "counted": {"model": "counted", "owner": "somebody"},
        "records": {"model": "from-records", "owner": "somebody"},
    }


@pytest.mark.slow
def test_a_check_writes_nothing_and_says_so(tmp_path):
    folder = copy_of_the_example(tmp_path / "board")
    send(folder, "mine")
    owners = (folder / "owners.yaml").read_bytes()
    assert build(folder, "--check") == (0, "7 submissions count, 0 do not\n", "")
    send(folder, "broken", counts=[(1, 2)] * 15)
    assert build(folder, "--check")[:2] == (1, "7 submissions count, 1 do not\n")
    code, message, _ = build(folder, "--check", "submissions/nobody")
    assert (code, message.startswith("refused: nobody: ")) == (1, True)
    assert build(folder, "submissions/mine")[0] == 2  # names without --check
    assert (folder / "owners.yaml").read_bytes() == owners
    (folder / "questions.txt").write_text("\n".join(IDS[:-1]), encoding="utf-8")
    assert build(folder)[0] == 1
    (folder / "owners.yaml").write_text("gpt-4o: {model: gpt-4o}\n", encoding="utf-8")
    code, _, message = build(folder)
    assert (code, message.partition(" ")[0]) == (1, "owners.yaml")
    with (folder / "leaderboard.yaml").open("a", encoding="utf-8") as config:
        config.write("owners: [a]\n")
    assert build(folder)[0] == 2
    assert not (folder / "page").exists()


@pytest.mark.slow
def test_a_folder_is_changed_by_its_owner_alone(tmp_path):
    folder = copy_of_the_example(tmp_path / "board")
    send(folder, "mine")

    def check(name, author):
        code, message, _ = build(folder, "--check", f"submissions/{name}", PR_AUTHOR=author)
        return code, message.splitlines()[0]

    assert check("mine", "Somebody") == (0, "counts: mine")
    other = "it belongs to somebody; the pull request is from intruder"
    assert check("mine", "intruder") == (1, f"refused: mine: {other}")
    assert check("mine", "")[0] == 1
    assert check("gpt-4o", "matharena") == (0, "counts: gpt-4o")
    # the record counts, not what the changed folder says
    about = folder / "submissions" / "gpt-4o" / "submission.yaml"
    about.write_text("model: gpt-4o\nowner: intruder\n", encoding="utf-8")
    belongs = "refused: gpt-4o: it belongs to MathArena; the pull request is from intruder"
    assert check("gpt-4o", "intruder") == (1, belongs)
    assert check("gpt-4o", "MathArena")[0] == 1
    shutil.rmtree(about.parent)
    assert check("gpt-4o", "intruder") == (1, belongs)
    assert check("gpt-4o", "MathArena") == (0, "withdrawn: gpt-4o")


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
    assert page["if"] == "github.event_name != 'pull_request' && github.ref == 'refs/heads/main'"
    steps = [step for job in (check, page) for step in job["steps"]]
    scripts = [step["run"] for step in steps if "run" in step]
    assert not any("${{" in script for script in scripts)
    assert "python build_page.py" in scripts
    actions = [step["uses"] for step in steps if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action) for action in actions)
    checkouts = [step["with"] for step in steps if "checkout" in step.get("uses", "")]
    assert all(options["persist-credentials"] is False for options in checkouts)
    with_token = [step for step in steps if "TOKEN" in step.get("env", {})]
    assert with_token == page["steps"][-1:]


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "core.hooksPath="]
    subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, timeout=600
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None or os.name != "posix", reason="needs git")
@pytest.mark.parametrize(
    ("changed", "author", "codes"),
    [
        (["mine"], "somebody", (0, 0)),
        (["mine", "--", "-x", "::error::y"], "somebody", (0, 123)),
        (["../owners.yaml"], "somebody", (1, 0)),
    ],
)
def test_the_steps_of_a_check_as_they_run(tmp_path, changed, author, codes):
    """The shell of the recipe, on a merge commit in a real repository."""
    root = copy_of_the_example(tmp_path / "root")
    send(root, "earlier", counts=[(1, 2)] * 15)
    sent = shutil.copytree(root, root / "sent")
    git(sent, "init", "-q")
    git(sent, "add", ".")
    git(sent, "commit", "-q", "-m", "base")
    for name in changed:
        if name.startswith(".."):
            (sent / "submissions" / name).write_text("{}\n", encoding="utf-8")
        else:
            send(sent, name, "mine")
    git(sent, "add", ".")
    git(sent, "commit", "-q", "--allow-empty", "-m", "merge")
    recipe = yaml.safe_load((EXAMPLE / "github_workflow.yml").read_text(encoding="utf-8"))
    scripts = [step["run"] for step in recipe["jobs"]["check"]["steps"] if "run" in step]
    scripts = [script for script in scripts if "git" in script]
    environment = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "PR_AUTHOR": author}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = [
        subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=root,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        for script in scripts
    ]
    assert tuple(done.returncode for done in found) == codes, found[-1].stderr
    assert not any(line.startswith("::") for line in found[-1].stdout.splitlines())
