"""Every command that reads saved runs reads them alike: model, trials, score, verdict, warnings.

The commands are called as a user calls them, on real runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from _support.command_line import called
from _support.reading_commands import COMMANDS, CommandError, Reading, summary
from _support.saved_cases import CASES, PLAIN, QUESTIONS, N, SavedCase, sample_runs, samples_in

from lm_eval_bayes import Outcomes, hbayes_at_n

#: Cells that cannot be: no single path names both for a command that takes one path for a model,
#: and a store holds neither questions nor standard answers for a judge. Tests of their own follow.
IMPOSSIBLE = {
    ("folder and store", "compare"),
    ("folder and store", "run --decide"),
    ("folder and store, deduplicated", "compare"),
    ("folder and store, deduplicated", "run --decide"),
    ("trial store", "verify"),
    ("trial store and its companions", "verify"),
}


#: Commands that take long, or read in the same way as `compare`, `rank` and `rubric`.
SLOW = {
    *("noise", "plan", "convergence", "anchors", "report", "verify"),
    *("run --decide", "export table", "export hub", "export every-eval-ever"),
}


#: A case whose paths are reduced to those of another one before any command sees them.
REDUCED = "trial store and its companions"


def cells() -> Iterator[object]:
    for case in CASES:
        for command in COMMANDS:
            if (case, command) not in IMPOSSIBLE:
                slow = command in {*SLOW, "summary"} or (case == REDUCED and command != "rank")
                marks = [pytest.mark.slow] if slow else []
                yield pytest.param(case, command, id=f"{case}-{command}", marks=marks)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Callable[[str], SavedCase]:
    """Return the files of a case, which are made once."""
    sampled = sample_runs(tmp_path_factory.mktemp("sampled"))
    cases: dict[str, SavedCase] = {}

    def save(name: str) -> SavedCase:
        if name not in cases:
            cases[name] = {**PLAIN, **CASES}[name](sampled, tmp_path_factory.mktemp("case"))
        return cases[name]

    return save


@pytest.fixture(scope="module")
def read(saved, tmp_path_factory) -> Callable[[str, str], Reading]:
    """Return what a command says of a case; it is called once."""
    readings: dict[tuple[str, str], Reading] = {}

    def read(case: str, command: str) -> Reading:
        if (case, command) not in readings:
            folder = tmp_path_factory.mktemp("output")
            readings[case, command] = COMMANDS[command](saved(case), folder)
        return readings[case, command]

    return read


@pytest.fixture(scope="module")
def models_of(tmp_path_factory) -> Callable[[SavedCase, tuple], tuple[str, ...]]:
    """Return the models that `summary` names in some of the runs of a case; it is called once."""
    models: dict[tuple, tuple[str, ...]] = {}

    def models_of(files: SavedCase, runs: tuple) -> tuple[str, ...]:
        if runs not in models:
            folder = tmp_path_factory.mktemp("output")
            models[runs] = summary(replace(files, runs=runs), folder).models
        return models[runs]

    return models_of


def leaves(content: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the numbers and texts of nested lists and mappings, with where they stand."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from leaves(value, f"{path}.{name}")
    elif isinstance(content, (list, tuple)):
        for i, value in enumerate(content):
            yield from leaves(value, f"{path}[{i}]")
    else:
        yield path, content


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.slow] if command in SLOW else [])
        for command in COMMANDS
    ],
)
@pytest.mark.parametrize("case", PLAIN)
def test_plain_files_are_read_as_they_are(saved, read, models_of, case, command):
    files, reading = saved(case), read(case, command)
    lines = samples_in(files.runs[0]).read_text(encoding="utf-8").splitlines()
    matrix = np.array([json.loads(line)["outcomes"] for line in lines])
    assert matrix.shape == (files.questions, N)
    scores = {"avg": matrix.mean(), "hbayes": hbayes_at_n(Outcomes.from_matrix(matrix)).mu}
    assert reading.n in (None, N)
    assert reading.questions in (None, files.questions)
    assert reading.trials in (None, N * files.questions)
    for name, score in reading.scores.items():
        if name != "judge":
            assert score == pytest.approx(scores[name], abs=0.51 * 10**-reading.digits)
    assert reading.notices == ()
    if reading.models:
        runs = (*files.runs, *files.others)[: len(reading.models)]
        assert reading.models == models_of(files, runs)


@pytest.mark.parametrize(("case", "command"), list(cells()))
def test_every_reader_agrees(saved, read, case, command):
    files = saved(case)
    if files.refused:
        with pytest.raises(CommandError) as refusal:
            read(case, command)
        assert (refusal.value.code, refusal.value.printed) == (2, "")
        errors = re.findall(r"^error: .*", refusal.value.error, re.MULTILINE)
        assert len(errors) == 1
        assert ("--dedupe" in errors[0]) == (command != "run --decide")  # which has no such option
        assert (
            len(re.findall(rf"(?<![-.\w]){N * QUESTIONS}\b", errors[0])) == 2
        )  # all of all trials
        return
    reading, plain = read(case, command), read(files.like, command)
    assert reading.models == plain.models
    assert (reading.n, reading.questions) == (plain.n, plain.questions)
    assert reading.trials == plain.trials
    assert reading.scores == pytest.approx(plain.scores, abs=1e-9)
    assert dict(leaves(reading.verdict)) == pytest.approx(dict(leaves(plain.verdict)), abs=1e-9)
    assert reading.notices == read(case, "rank").notices
    assert bool(reading.notices) == bool(files.mentions)
    for name in files.mentions:
        assert name in "\n".join(reading.notices)


@pytest.mark.parametrize("case", ["folder and store", "folder copied"])
def test_a_run_is_not_compared_with_itself(saved, case):
    code, printed, error = called("compare", *saved(case).runs, "--json")
    assert (code, printed) == (2, "")
    (line,) = error.splitlines()
    assert line.startswith("error: ")
    assert "--dedupe" in line
    assert len(re.findall(rf"(?<![-.\w]){N * QUESTIONS}\b", line)) == 2  # all of all trials


def test_a_run_and_its_store_are_equal(saved):
    run, store = saved("folder and store").runs
    code, printed, error = called("compare", run, store, "--json", "--dedupe")
    assert code == 0
    (warning,) = error.splitlines()
    for name in ("warning: ", str(N * QUESTIONS), str(run), str(store)):
        assert name in warning
    (task,) = json.loads(printed)["tasks"]
    assert (task["difference"], task["z"], task["rule_z"]) == (0, 0, "undecided")
    assert task["p_a_greater"] == pytest.approx(0.5)
    assert task["a"]["n_range"] == task["b"]["n_range"] == [N, N]
    assert task["a"]["mu"] == task["b"]["mu"]


@pytest.mark.parametrize(
    "case",
    ["slices in one folder", pytest.param("slices in two folders", marks=pytest.mark.slow)],
)
def test_the_vote_of_merged_slices_is_over_all_trials(saved, case):
    rows = {}
    for name in (case, "one run"):
        code, printed, _ = called("summary", *saved(name).runs, "--json")
        assert code == 0
        rows[name] = json.loads(printed)["tasks"][0]["rows"]
    # every slice was configured with the default of its own trials, maj@4
    assert [name for name in rows[case] if name.startswith("maj@")] == [f"maj@{N}"]
    assert rows[case] == pytest.approx(rows["one run"], abs=1e-12)
