"""What pages and exports tell of settings: the numbers of `summary` and `noise` of the files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter

import numpy as np
import pytest
from _support.command_line import answer, called, exported_table
from _support.tables import write_rows

from lm_eval_bayes._util.text import format_score as shown

LABELS = ("mon", "tue", "few <b>", "thu")
#: By model, how much better its answers are in each setting.
BOARD = {"org/same": (0, 0, 0, 0), "org/outlier": (0, 0, 0.5), "org/two": (-0.35, 0.35)}
BOARD["org/one"] = (0,)


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """Return a table of these models, their summaries, and the page."""
    rng, rows = np.random.default_rng(8), []
    p = rng.beta(2.0, 3.0, (20, 1))
    for model, settings in BOARD.items():
        for label, better in zip(LABELS, settings, strict=False):
            right = rng.random((20, 6)) < np.clip(p + better, 0.02, 0.98)
            about = {"model": model, "setting": label}
            rows += [
                {"id": q, "trial": t, "correct": int(c)} | about
                for (q, t), c in np.ndenumerate(right)
            ]
    path = write_rows(tmp_path_factory.mktemp("board") / "board.csv", rows)
    page = called("report", path, "-o", "-")[1]
    return path, {task["model"]: task for task in answer("summary", path)["tasks"]}, page


def ends(interval):
    return f"{shown(interval['low'])}–{shown(interval['high'])}"


def test_the_table_of_the_page(board):
    path, summaries, page = board
    (region,) = re.findall(r'aria-label="Settings, .*?</table>', page, re.DOTALL)
    cells = re.findall(r"<t[hd][^>]*>([^\n]*?)</t[hd]>", region.partition("<tbody>")[2])
    texts = [re.sub(r"<[^>]*>", "", cell).strip() for cell in cells]
    rows = {texts[i]: texts[i + 1 : i + 9] for i in range(0, len(texts), 9)}
    spreads = {m["model"]: m["settings"] for m in answer("noise", path)["tasks"][0]["models"]}
    remarks = {"same": "no", "two": "; as much as methods", "outlier": "; few &lt;b&gt; unlike"}
    assert {*rows} == {*remarks}
    for name, row in rows.items():
        summary, spread = summaries[f"org/{name}"], spreads[f"org/{name}"]
        settings, like = summary["settings"], summary["settings"]["like"]
        scores = zip(settings["labels"], map(shown, settings["scores"]), strict=True)
        p = spread["p_of_trials"]
        assert row[:6] == [
            str(settings["n"]),
            ends(summary["hbayes"]["benchmark"]["interval"]),
            f"{shown(like['benchmark']['mean'])} {ends(like['benchmark'])}",
            ends(like["population"]),
            f"{shown(settings['sd'])} {ends(settings)}",
            shown(spread["sd_of_trials"]),
        ]
        assert row[6].startswith("no" if p >= 0.05 else f"yes, p = {p:.1g}")
        assert remarks[name] in row[6]
        assert row[7].replace("&lt;b&gt;", "<b>") == ", ".join(map(" ".join, scores))
    assert page.count("not known from one setting") == 1


def test_the_strip_lies_where_the_axis_says(board):
    _, summaries, page = board
    table = page.partition('aria-label="Scores, ')[2].partition("</table>")[0]
    axis = re.findall(r'<text x="([\d.]+)%" y="12" class="tick \w+">([^<]*)</text>', table)
    positions, ticks = np.array(axis, dtype=float).T
    rows = re.findall(r'title="([^"]*)">[^<]*</bdi></th>(.*?)</tr>', table, re.DOTALL)
    assert len(rows) == len(BOARD)
    for model, row in rows:
        at = re.findall(r'<line x1="([\d.]+)%" x2="\1%" [^>]*class="bracket"', row)
        at += re.findall(r'<circle cx="([\d.]+)%" [^>]*class="setting"', row)
        expected, settings = [], summaries[model]["settings"]
        if settings:
            like = settings["like"]["benchmark"]
            expected = [like["low"], like["high"], *settings["scores"]]
            assert f"settings like these {shown(like['low'])} to {shown(like['high'])}; " in row
        assert np.interp([*map(float, at)], positions, ticks) == pytest.approx(expected, abs=1e-3)


def test_the_data_of_the_page_and_the_tables(board):
    path, summaries, page = board
    data = json.loads(re.findall(r'id="report-data">(.*?)</script>', page)[0])
    found = {model: summary["settings"] for model, summary in summaries.items()}
    assert {summary["model"]: summary["settings"] for summary in data["summaries"]} == found
    (plain,) = json.loads(exported_table(".json", path)[1])["leaderboards"]
    assert {place["model"]: place["settings"] for place in plain["places"]} == found
    markdown = exported_table(".md", path, "--scope=population")[1]
    for row in csv.DictReader(io.StringIO(exported_table(".csv", path, "--scope=population")[1])):
        numbers = [row[f"settings{name}"] for name in ("", "_sd", "_sd_low", "_sd_high")]
        numbers += [row[f"like_{name}"] for name in ("mean", "low", "high")]
        settings = found[row["model"]]
        if settings is None:
            assert {*numbers, row["setting_labels"]} == {""}
            continue
        like = settings["like"]["population"]
        expected = [settings[name] for name in ("n", "sd", "low", "high")]
        assert [*map(float, numbers)] == [*expected, like["mean"], like["low"], like["high"]]
        assert row["setting_labels"] == "; ".join(settings["labels"])
        cell = f"| {shown(like['low'])} to {shown(like['high'])} ({settings['n']} settings) |"
        assert cell in markdown


def test_records_carry_the_settings_and_trials_their_setting(board, tmp_path):
    code, _, error = called("export", "every-eval-ever", board[0], "-o", tmp_path, "--instances")
    assert code == 0, error
    for file in tmp_path.rglob("*.json"):
        model = "/".join(file.parts[-3:-1])
        settings, n = board[1][model]["settings"], board[1][model]["n_range"][0]
        results = json.loads(file.read_text(encoding="utf-8"))["evaluation_results"]
        details = {r["evaluation_result_id"]: r["score_details"]["details"] for r in results}
        carried = {id: json.loads(d["settings"]) for id, d in details.items() if "settings" in d}
        names = (f"hbayes@{n}", f"hbayes@{n}_population") if settings else ()
        assert carried == dict.fromkeys(names, settings)
        lines = file.with_name(f"{file.stem}_samples.jsonl").read_text(encoding="utf-8")
        labels = Counter(json.loads(line)["metadata"].get("setting") for line in lines.splitlines())
        assert labels == dict.fromkeys(settings["labels"] if settings else [None], 120)


def test_what_is_not_known_is_said(tmp_path):
    rows = [
        {"model": "m", "id": q, "correct": 0.1 * q, "setting": s} for q in range(6) for s in "ab"
    ]
    path = write_rows(tmp_path / "m.csv", [row | {"trial": 0} for row in rows])
    note = "no interval about settings like these (2 settings): trials have scores"
    assert note in called("report", path, "-o", "-")[1]
    assert note in exported_table(".csv", path)[2]
