"""No command writes a value outside the interval beside it, whatever the models score."""

from __future__ import annotations

import csv
import itertools
import json
import re

import numpy as np
import pytest
from _support.command_line import answer, called

#: The chance of a right answer to each of ten questions, by model.
MODELS = {
    "solves all": np.ones(10),
    "solves nearly all": np.full(10, 0.97),
    "two kinds": np.repeat([0.97, 0.0], [7, 3]),
    "middling": np.linspace(0.05, 0.9, 10),
    "solves none": np.zeros(10),
}
#: Keys of a value whose interval stands beside it.
CENTRES = ("mu", "middle", "difference")
#: Scores as they are printed; whole numbers are counts and ranks.
NUMBER = r"-?\d*\.\d+"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(34)
    path = tmp_path_factory.mktemp("runs") / "trials.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("model", "question", "trial", "score", "answer", "target"))
        for (model, chances), question, trial in itertools.product(
            MODELS.items(), range(10), range(8)
        ):
            right = rng.random() < chances[question]
            given = question if right else 100 + rng.integers(4)
            writer.writerow((model, f"q{question}", trial, int(right), given, question))
    return path


def triples(content, path=()):
    """Yield every value with the ends of its interval, and where it stands."""
    if isinstance(content, list):
        for number, item in enumerate(content):
            yield from triples(item, (*path, number))
    elif isinstance(content, dict):
        ends = content.get("interval", content)
        ends = ends if isinstance(ends, dict) else content
        centres = [content[key] for key in CENTRES if key in content]
        row = [*centres[:1], ends.get("low"), ends.get("high")]
        if centres and None not in row:
            columns = map(np.atleast_1d, row)
            yield from ((path, *map(float, each)) for each in zip(*columns, strict=True))
        for key, item in content.items():
            yield from triples(item, (*path, key))


def check(found, at_least):
    found = list(found)
    assert len(found) >= at_least
    assert [row for row in found if not row[2] - 1e-12 <= row[1] <= row[3] + 1e-12] == []


@pytest.mark.parametrize("scope", ["benchmark", "population"])
@pytest.mark.parametrize(
    ("command", "at_least"),
    [
        (("rank",), 10),
        (("plan", "--width", "0.2"), 1),
        (("compare", "--k", "1,2,8", "-a", "two kinds", "-b", "solves all"), 6),
        (("compare", "-a", "middling", "-b", "solves none"), 3),
        (("study convergence",), 10),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_json(table, command, at_least, scope):
    check(triples(answer(command[0], table, *command[1:], "--scope", scope)), at_least)


def test_summary(table):
    content = answer("summary", table)
    check(triples(content), 5 * (3 + 4 + 3 + 3 + 3 + 1))
    for task in content["tasks"]:
        assert task["rows"].keys() == {name[1:] for name in task["posterior_rows"]}
        assert all(isinstance(value, float) for value in task["rows"].values())


def test_noise(table):
    check(triples(answer("noise", table)), 5)


def test_printed_tables(table):
    for command in ("summary", "rank", "compare"):
        pair = ("-a", "two kinds", "-b", "solves all")
        code, printed, _ = called(
            command, table, *(pair if command == "compare" else ()), "--verbose"
        )
        assert code == 0
        pattern = r"([+-]?\d\.\d{3})  ([+-]?\d\.\d{3}) (?:to )?([+-]?\d\.\d{3})"
        rows = re.findall(pattern, printed)
        at_least = {"summary": 10, "rank": 0, "compare": 2}[command]
        check(((command, *map(float, row)) for row in rows), at_least)


def test_report(table, tmp_path):
    page = tmp_path / "report.html"
    assert called("report", table, "-o", page)[0] == 0
    text = page.read_text(encoding="utf-8")
    rows = re.findall(r">([\d.]+) <span class=\"soft\">([\d.]+)–([\d.]+)<", text)
    check((("cell", *map(float, row)) for row in rows), 3 * 5)


def test_exported_tables(table, tmp_path):
    path = tmp_path / "board.csv"
    assert called("export", "table", table, "-o", path, "--k", "1,2,8")[0] == 0
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            stems = [name[:-4] for name in row if name.endswith("_low") and name != "rank_low"]
            found += [
                (name, *(float(row[column]) for column in (name, f"{name}_low", f"{name}_high")))
                for name in stems
                if name in row
            ]
            found.append(("mean", *(float(row[column]) for column in ("mean", "low", "high"))))
    check(found, 5 * 11)
    path = tmp_path / "board.json"
    assert called("export", "table", table, "-o", path)[0] == 0
    check(triples(json.loads(path.read_text(encoding="utf-8"))), 5 * 12)


def test_records(table, tmp_path):
    ids = [f"{model}=org/{number}" for number, model in enumerate(MODELS)]
    options = [word for name in ids for word in ("--model-id", name)]
    code, _, error = called("export", "every-eval-ever", table, "-o", tmp_path, *options)
    assert code == 0, error
    found, estimates = [], 0
    for path in tmp_path.rglob("*.json"):
        for result in json.loads(path.read_text(encoding="utf-8"))["evaluation_results"]:
            details = result["score_details"]
            ends = details.get("uncertainty", {}).get("confidence_interval")
            estimates += ends is None
            if ends is not None:
                name = result["evaluation_name"]
                found.append((name, details["score"], float(ends["lower"]), float(ends["upper"])))
    check(found, 5 * (3 + 14))
    assert estimates == 5 * (1 + 14)
