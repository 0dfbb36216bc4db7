"""How questions were asked, as logs record it: the name, what is kept apart, and the warning."""

from __future__ import annotations

import pytest
from _support.run_files import TASK, row, seeded, write_run

from lm_eval_bayes.analysis.leaderboard import leaderboard
from lm_eval_bayes.runs.reader import read_runs

HARIRI = {"name": "hariri-2026", "prompt": "hariri-2026", "chat_template": "tokenizer"}
PLAIN = {**HARIRI, "name": "custom", "chat_template": False, "differs_in": ["chat_template"]}


def write(folder, protocol, model="org/model", rows=None, **changes):
    recorded = {} if protocol is None else {"lm_eval_bayes": {"protocol": protocol}}
    metadata = {"version": 1.0, "bayes": {"weights": [0, 1]}, **recorded}
    rows = [row(n, outcomes=[n % 2, 1]) for n in range(3)] if rows is None else rows
    configs = {TASK: {"task": TASK, "metadata": metadata}}
    write_run(folder, rows, model=model, configs=configs, **changes)
    return folder


@pytest.mark.parametrize(
    ("protocol", "label"),
    [
        (HARIRI, "hariri-2026"),
        (PLAIN, "custom (hariri-2026 but for chat_template)"),
        ({"name": "custom", "chat_template": "server"}, "custom (with chat template)"),
        (None, ""),
        ("custom", ""),
        ({"name": "custom", "differs_in": 5}, "custom (without chat template)"),
        ({"name": "a\x1b[31m" + 300 * "b"}, None),
    ],
)
def test_a_run_names_its_protocol(tmp_path, protocol, label):
    named = read_runs(write(tmp_path / "a", protocol)).runs[0].provenance.protocol
    assert named == label if label is not None else (len(named) <= 200 and "\x1b" not in named)


@pytest.mark.parametrize(
    ("first", "second", "n_warnings"),
    [(HARIRI, PLAIN, 1), (HARIRI, HARIRI, 0), (HARIRI, None, 0), (None, None, 0)],
)
def test_runs_of_unlike_protocols_are_ranked_with_a_warning(tmp_path, first, second, n_warnings):
    rows = [row(n, outcomes=[1, n % 2], prompt=f"<user>{n}") for n in range(3)]
    paths = [write(tmp_path / "a", first), write(tmp_path / "b", second, "org/other", rows)]
    saved = read_runs(paths)
    warnings = [warning for warning in saved.warnings if "protocols" in warning]
    assert len(warnings) == n_warnings
    board = leaderboard(saved.runs)
    labels = {run.provenance.protocol for run in saved.runs}
    assert set(board.protocols) == labels - {""}
    assert {place["protocol"] for place in board.to_dict()["places"]} == labels
    assert all(label in warning for warning in warnings for label in labels)


def test_the_flag_of_the_harness_and_the_setting_apply_one_template(tmp_path):
    sha = "0123456789abcdef" * 4
    flag = {"chat_template_sha": sha, "fewshot_as_multiturn": True}
    by_setting = {**HARIRI, "chat_template_sha": sha}
    write(tmp_path / "a", by_setting, rows=seeded([0], 1))
    write(tmp_path / "b", by_setting, rows=seeded([0], 11), **flag)
    write(tmp_path / "c", None, rows=seeded([0], 21), **flag)
    assert read_runs([tmp_path / name for name in "abc"]).runs[0].n_trials == 12
    # the flag was given, and the setting `never` decided otherwise
    write(tmp_path / "d", {**PLAIN, "chat_template_sha": None}, **flag)
    assert len(read_runs([tmp_path / "a", tmp_path / "d"]).models) == 2
