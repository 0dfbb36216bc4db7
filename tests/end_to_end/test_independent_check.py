"""The independent check stands on its own feet, and notices what is wrong."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.slow

MODULES = (
    "recompute",
    "independent_rows",
    "independent_interval",
    "independent_scores",
    "independent_learned_prior",
)


@pytest.fixture(scope="module")
def recompute() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parent))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        yield importlib.import_module("recompute")


def test_it_knows_nothing_of_the_package() -> None:
    for name in MODULES:
        source = (Path(__file__).resolve().parent / f"{name}.py").read_text(encoding="utf-8")
        imports = [x for x in source.splitlines() if x.startswith(("import ", "from "))]
        modules = {line.split()[1].split(".")[0] for line in imports}
        assert modules <= set(sys.stdlib_module_names) | set(MODULES)


def test_published_posterior(recompute: ModuleType) -> None:
    rows = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
    questions = [recompute.Question(row, [None] * 5, 0) for row in rows]
    mu, sigma = recompute.Bank(questions, {"weights": [0, 0.5, 1]}).posterior()
    assert (round(mu, 6), round(sigma, 6)) == (0.5625, 0.091998)  # [Hariri 2026]


# -- the check itself: it must notice what is wrong -------------------------------------------

Rows = dict[str, Any]
OUTCOMES = [[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 0, 1, 0]] * 2


def write_run(
    recompute: ModuleType,
    folder: Path,
    change: Callable[[Rows], object],
    change_line: Callable[[Rows], object] = len,
    outcomes: Any = OUTCOMES,
    **settings: Any,
) -> None:
    """Write the files of a run that is right but for what the changes do."""
    settings = {
        **{"n": 4, "k": [1, 2], "tau": 0.5, "maj_k": 1, "weights": [0.0, 1.0]},
        **{"level": 0.95, "interval": "exact", **settings},
    }
    questions = [recompute.Question(row, [None] * len(row), 0) for row in outcomes]
    bank = recompute.Bank(questions, settings)
    rows = {name: own for _, name, own in bank.rows()}
    for row in [row for row in rows if re.match(r"pass[@^][12]|m?g-pass@|maj@1", row)]:
        posterior = {"": 0.5, "_stderr": 0.1, "_low": 0.3, "_high": 0.7}
        rows |= {f"h{row}{end}": own for end, own in posterior.items()}
    with (folder / "samples_task_1.jsonl").open("w", encoding="utf-8") as lines:
        for i, question in enumerate(questions):
            responses = ["?"] * len(question.outcomes)
            line = {"doc_id": i, "filter": "none", "outcomes": question.outcomes}
            line |= {"answers": question.answers, "metrics": ["exact_match"]}
            line["exact_match"] = list(question.outcomes)
            line |= {"resps": [responses], "lengths": [1] * len(responses)}
            if i == 1:
                change_line(line)
            lines.write(json.dumps(line) + "\n")
    printed = {f"{row},none": rows[row] for row in bank.printed()}
    change(rows)
    results = {
        "configs": {"task": {"metadata": {"bayes": settings}}},
        "results": {"task": {key: rows.get(key[:-5], own) for key, own in printed.items()}},
        "posterior": {"task": {"none": rows}},
    }
    (folder / "results_1.json").write_text(json.dumps(results), encoding="utf-8")


def shifted(row: str, by: float) -> Callable[[Rows], object]:
    """Return a change that moves a row by so many of its posterior's standard deviations."""
    stem = row.removesuffix("_low").removesuffix("_high").removesuffix("_stderr")

    def change(rows: Rows) -> None:
        rows[row] += by * rows[f"{stem}_stderr"]

    return change


def nudge(rows: Rows) -> None:
    rows["mg-pass@2"] += 1e-7


@pytest.mark.parametrize("method", ["exact", "normal", "beta"])
def test_a_run_that_is_right_passes(
    recompute: ModuleType, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(recompute, tmp_path, len, interval=method)
    assert recompute.main([str(tmp_path)]) == 0
    assert " 0 complaints" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "method", "named"),
    [
        (shifted("hbayes@4", 0.2), "exact", "hbayes@4,none: printed"),
        (shifted("hbayes@4_low", 0.8), "exact", "hbayes@4_low,none: printed"),
        (shifted("hbayes@4_population", -0.2), "beta", "hbayes@4_population,none: printed"),
        (shifted("hbayes@4_population_high", 0.8), "exact", "population_high,none: printed"),
        (lambda rows: rows.pop("hbayes@4_low"), "exact", "hbayes@4_low,none: 'missing'"),
        (lambda rows: rows.update({"hbayes@2": 0.4}), "exact", "unknown row hbayes@2,none"),
        (shifted("bayes@4_low", -0.05), "exact", "bayes@4_low,none: printed"),
        (lambda rows: rows.pop("pass^2"), "exact", "pass^2,none: 'missing'"),
        (nudge, "exact", "mg-pass@2,none: printed"),
    ],
)
def test_a_wrong_row_is_noticed(
    recompute: ModuleType,
    tmp_path: Path,
    change: Callable[[Rows], object],
    method: str,
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_run(recompute, tmp_path, change, interval=method)
    assert recompute.main([str(tmp_path)]) == 1
    assert named in capsys.readouterr().err


def test_a_folder_without_results_is_no_success(recompute: ModuleType, tmp_path: Path) -> None:
    assert recompute.main([str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda line: line.update({"hbayes@4": 0.5}), "rows of the run stand in the line"),
        (lambda line: line["lengths"].append(3), "`lengths`"),
        (lambda line: line["exact_match"].pop(), "3 exact_match for 4 responses"),
    ],
)
def test_a_wrong_line_of_the_log_is_noticed(
    recompute: ModuleType,
    tmp_path: Path,
    change: Callable[[Rows], object],
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_run(recompute, tmp_path, len, change)
    assert recompute.main([str(tmp_path)]) == 1
    assert f"question 1,none: {named}" in capsys.readouterr().err


def test_a_table_in_another_order_or_with_other_numbers_is_noticed(
    recompute: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(recompute, tmp_path, len)
    (file,) = tmp_path.glob("results_*.json")
    results = json.loads(file.read_text(encoding="utf-8"))
    rows = results["results"]["task"]
    for changed in (dict(reversed(rows.items())), rows | {"avg@4,none": rows["avg@4,none"] + 1e-9}):
        results["results"]["task"] = changed
        file.write_text(json.dumps(results), encoding="utf-8")
        assert recompute.main([str(tmp_path)]) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_run_that_lost_trials_keeps_its_posteriors(
    recompute: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = [*OUTCOMES[:5], [], [1], [0, 1]]
    write_run(recompute, tmp_path, shifted("hbayes@4", 0.2), outcomes=lost)
    assert recompute.main([str(tmp_path)]) == 1
    complaints = capsys.readouterr().err.splitlines()
    # the wrong row, and the log's three short lines
    assert "hbayes@4,none: printed" in complaints[0]
    assert [line.endswith("responses, but N = 4") for line in complaints[1:]] == [True] * 3
