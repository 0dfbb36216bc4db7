"""Every command that reads saved runs: how it is called on them, and what its output says.

A command is a function of the runs' files and of an empty folder that it may write into. It
returns a :class:`Reading`, or raises :class:`CommandError` where its exit code is not 0.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml

from _support.command_line import called
from _support.harness_command import few_tasks
from _support.label_server import serving
from _support.saved_cases import MODELS, TASK, N, SavedCase


@dataclass(frozen=True)
class Reading:
    """What a command's output says; None and empty where it says nothing of it.

    Attributes
    ----------
    models : tuple of str
        The names of all models, sorted.
    n, questions, trials : int or None
        The model's trials per question, its questions, and its trials in all.
    scores : mapping of str to float
        The model's scores: `avg` and `hbayes`, or `judge`, the mean probability of label A.
    digits : int
        How many decimals of the scores are given.
    verdict : object
        What the command concludes.
    notices : tuple of str
        The warnings and notes on standard error, sorted.
    """

    models: tuple[str, ...] = ()
    n: int | None = None
    questions: int | None = None
    trials: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    digits: int = 12
    verdict: object = None
    notices: tuple[str, ...] = ()


class CommandError(AssertionError):
    """A command ended with another exit code than 0."""

    def __init__(self, code: int, printed: str, error: str) -> None:
        super().__init__(f"exit code {code}: {error[-1000:]}")
        self.code, self.printed, self.error = code, printed, error


def _run(*arguments: object) -> tuple[str, str]:
    code, printed, error = called(*arguments)
    if code:
        raise CommandError(code, printed, error)
    return printed, error


def _json(*arguments: object) -> tuple[Any, tuple[str, ...]]:
    printed, error = _run(*arguments, "--json")
    return json.loads(printed), _notices(error)


def _notices(error: str) -> tuple[str, ...]:
    lines = error.splitlines()
    return tuple(sorted(line for line in lines if line.startswith(("warning: ", "note: "))))


def _constant(smallest: int, largest: int) -> int:
    assert smallest == largest
    return smallest


def _names(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(sorted(row["model"] for row in rows))


def _single(case: SavedCase) -> Path:
    assert case.single is not None
    return case.single


# -- scores and decisions --------------------------------------------------------------------------


def summary(case: SavedCase, folder: Path) -> Reading:
    content, notices = _json("summary", *case.runs, *case.options)
    task = content["tasks"][0]
    return Reading(
        _names(content["tasks"]),
        _constant(*task["n_range"]),
        task["questions"],
        task["trials"],
        {"hbayes": task["hbayes"]["benchmark"]["mu"], "avg": task["avg"]["value"]},
        verdict=(task["hbayes"], task["bayes"]),
        notices=notices,
    )


def compare(case: SavedCase, folder: Path) -> Reading:
    content, notices = _json("compare", _single(case), case.others[0], *case.options)
    (task,) = content["tasks"]
    posterior = task["a"]
    return Reading(
        _names([content["a"], content["b"]]),
        _constant(*posterior["n_range"]),
        task["n_questions"],
        scores={"hbayes": posterior["mu"]},
        verdict=[
            task[name] for name in ("difference", "z", "rule_z", "p_a_greater", "distinguishable")
        ],
        notices=notices,
    )


def rank(case: SavedCase, folder: Path) -> Reading:
    content, notices = _json("rank", *case.runs, *case.others, *case.options)
    (board,) = content["leaderboards"]
    middle = board["places"][1]
    return Reading(
        _names(board["places"]),
        _constant(*middle["n_range"]),
        board["questions"],
        scores={"hbayes": middle["mu"]},
        verdict=[(row["model"], row["rank"], row["interval"]) for row in board["places"]],
        notices=notices,
    )


def noise(case: SavedCase, folder: Path) -> Reading:
    content, notices = _json("noise", *case.runs, *case.options)
    (task,) = content["tasks"]
    components = task["models"][0]["components"]
    return Reading(
        _names(task["models"]),
        _constant(*components["trials_range"]),
        task["questions"],
        scores={"avg": components["score"]},
        verdict=(components["icc"], components["flip"], task["models"][0]["runs"]),
        notices=notices,
    )


def plan(case: SavedCase, folder: Path) -> Reading:
    content, notices = _json("plan", *case.runs, "--width", ".05", *case.options)
    forecast = content["runs"][0]["forecast"]
    return Reading(
        tuple(sorted(name for row in content["runs"] for name in row["models"])),
        int(forecast["trials"]),
        content["runs"][0]["questions"],
        verdict=[forecast[name] for name in ("current", "additional", "additional_low", "total")],
        notices=notices,
    )


def convergence(case: SavedCase, folder: Path) -> Reading:
    runs = (*case.runs, *case.others)
    content, notices = _json("study convergence", *runs, "--replicates", 50, *case.options)
    (task,) = content["tasks"]
    curve = task["along"][task["models"][0]]
    return Reading(
        tuple(sorted(task["models"])),
        task["trials"],
        task["questions"],
        scores={"hbayes": curve[-1]["mu"]},
        verdict=(curve, [row["convergence"]["pmf"] for row in task["rankings"]]),
        notices=notices,
    )


def anchors(case: SavedCase, folder: Path) -> Reading:
    content, notices = _json("study anchors", *case.runs, *case.others, *case.options)
    (task,) = content["tasks"]
    middle = task["placed"][0]
    return Reading(
        _names(task["placed"]),
        questions=middle["posterior"]["n_queries"],
        trials=middle["posterior"]["n_trials"],
        scores={"avg": middle["score"]},
        verdict=(middle["inside"], task["independence"]["variance_ratio"]),
        notices=notices,
    )


def decide(case: SavedCase, folder: Path) -> Reading:
    """Compare a new run of the weaker model, four trials per question, with the runs."""
    with few_tasks(), warnings.catch_warnings():
        warnings.simplefilter("default")
        _, error = _run(
            *("run", "--decide", _single(case), "--max-trials", 4, *case.options),
            *("--store", folder / "new.sqlite", "--model", "biased_coin", "--tasks", TASK),
            *("--model_args", MODELS["weaker"], "--limit", case.questions),
        )
    number = r"([+-]?\d+(?:\.\d+)?)"
    pattern = rf"^ +4  {number} .* difference {number} \(sd {number}\), z = {number} is"
    # a line follows the progress bar that was there
    match = re.search(pattern, error.replace("\r", "\n"), re.MULTILINE)
    assert match is not None, error
    mu, difference, sd, z = map(float, match.groups())
    # four planned trials are too few for the error rate of the rule
    few_trials = tuple(line for line in _notices(error) if "exceeds the rate" in line)
    assert len(few_trials) == 1
    return Reading(
        scores={"hbayes": mu - difference},
        digits=2,
        verdict=(difference, sd, z),
        notices=tuple(line for line in _notices(error) if line not in few_trials),
    )


# -- rubrics and a judge ---------------------------------------------------------------------------


def rubric(case: SavedCase, folder: Path) -> Reading:
    schemata = ("--schema", "exact_match", "--schema", "efficiency_adjusted")
    content, notices = _json("study rubric", *case.runs, case.others[0], *schemata, *case.options)
    (task,) = content["tasks"]
    scores = {row["name"]: row["scores"] for row in task["schemata"]}
    return Reading(
        _names(task["runs"]),
        questions=task["questions"],
        trials=task["runs"][0]["trials"],
        scores={"hbayes": scores["exact_match"][0]["mu"]},
        verdict={
            name: [(row["model"], row["rank"], row["sigma"], row["categories"]) for row in rows]
            for name, rows in scores.items()
        },
        notices=notices,
    )


def verify(case: SavedCase, folder: Path) -> Reading:
    """Judge a copy of the runs: verdicts become files beside the samples."""
    copied = Path(shutil.copytree(case.root, folder / "copied"))
    runs = [copied / run.relative_to(case.root) for run in case.runs]
    with serving() as server:
        judge = ("--verifier", "judge", "--base-url", server.url())
        rows, notices = _json("study verify", *runs, *judge, *case.options)
    trials = sum(row["trials"] for row in rows)
    return Reading(
        tuple(sorted({row["model"] for row in rows})),
        trials=trials,
        scores={"judge": sum(row["trials"] * row["means"][0] for row in rows) / trials},
        verdict={label: sum(row["labels"][label] for row in rows) for label in "ABC"},
        notices=tuple(notice.replace(str(copied), str(case.root)) for notice in notices),
    )


# -- the report ------------------------------------------------------------------------------------


class _Tables(HTMLParser):
    """The tables of a page as rows of cells, by the last name in their `class`."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if tag == "table":
            names = (dict(attrs).get("class") or "").split()
            self._rows = self.tables.setdefault(names[-1] if names else "", [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._rows = []

    def handle_data(self, data: str) -> None:
        if self._rows and self._rows[-1]:
            self._rows[-1][-1] += data


@functools.cache
def _page(case: SavedCase) -> tuple[Any, dict[str, list[list[str]]], tuple[str, ...]]:
    """Return what the command says of the page, the page's tables, and the notices."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        runs = (*case.runs, case.others[0])
        content, notices = _json("report", *runs, "-o", page, *case.options)
        parser = _Tables()
        parser.feed(page.read_text(encoding="utf-8"))
    tables = {
        name: [[" ".join(cell.split()) for cell in row] for row in rows]
        for name, rows in parser.tables.items()
    }
    return content, tables, notices


def report(case: SavedCase, folder: Path) -> Reading:
    content, tables, notices = _page(case)
    rows = tables["scores"][1 : 1 + len(content["models"])]
    return Reading(
        tuple(sorted(content["models"])),
        questions=content["questions"],
        trials=content["trials"] - N * case.questions,
        scores={"hbayes": float(rows[0][1])},
        digits=3,
        verdict=[row[:5] for row in rows],
        notices=notices,
    )


# -- exports ---------------------------------------------------------------------------------------


def export_table(case: SavedCase, folder: Path) -> Reading:
    file = folder / "table.csv"
    _, error = _run("export", "table", *case.runs, *case.others, *case.options, "-o", file)
    rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
    middle = rows[1]
    return Reading(
        _names(rows),
        _constant(int(middle["n_min"]), int(middle["n_max"])),
        int(middle["questions"]),
        scores={"hbayes": float(middle["mean"])},
        verdict=[(row["model"], row["rank"], float(row["low"])) for row in rows],
        notices=_notices(error),
    )


def export_hub(case: SavedCase, folder: Path) -> Reading:
    _, error = _run(
        *("export", "hub", *case.runs, *case.options, "-o", folder),
        *("--model-id", "org/model", "--dataset", "org/data", "--task-id", "sums"),
    )
    (file,) = (folder / ".eval_results").iterdir()
    (result,) = yaml.safe_load(file.read_text(encoding="utf-8"))
    pattern = r"avg@(\d+), (\d+)[^;]* questions; .*?interval ([\d.]+) to ([\d.]+)"
    notes = re.match(pattern, result["notes"])
    assert notes is not None, result["notes"]
    n, questions, low, high = notes.groups()
    return Reading(
        n=int(n),
        questions=int(questions),
        scores={"avg": result["value"] / 100},
        digits=4,
        verdict=(low, high),
        # warnings of the file itself apart, such as that the dataset has no revision
        notices=tuple(notice for notice in _notices(error) if file.name not in notice),
    )


def export_every_eval_ever(case: SavedCase, folder: Path) -> Reading:
    _, error = _run(
        *("export", "every-eval-ever", *case.runs, *case.options),
        *("-o", folder, "--model-id", "org/model", "--instances", "--no-texts"),
    )
    (record,) = folder.rglob("*.json")
    (instances,) = folder.rglob("*.jsonl")
    rows = json.loads(record.read_text(encoding="utf-8"))["evaluation_results"]
    results = {row["metric_config"]["metric_name"]: row for row in rows}
    n = results[f"hbayes@{N}"]["metric_config"]["metric_parameters"]["n"]
    hbayes, avg = (results[f"{name}@{N}"]["score_details"] for name in ("hbayes", "avg"))
    trials = len(instances.read_text(encoding="utf-8").splitlines())
    assert int(hbayes["details"]["trials"]) == trials
    return Reading(
        n=n,
        questions=hbayes["uncertainty"]["num_samples"],
        trials=trials,
        scores={"hbayes": hbayes["score"], "avg": avg["score"]},
        verdict=hbayes["uncertainty"],
        notices=_notices(error),
    )


COMMANDS: dict[str, Callable[[SavedCase, Path], Reading]] = {
    "summary": summary,
    "compare": compare,
    "rank": rank,
    "noise": noise,
    "plan": plan,
    "convergence": convergence,
    "anchors": anchors,
    "report": report,
    "rubric": rubric,
    "verify": verify,
    "run --decide": decide,
    "export table": export_table,
    "export hub": export_hub,
    "export every-eval-ever": export_every_eval_ever,
}
