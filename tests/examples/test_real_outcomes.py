"""The examples with real outcomes print what is known of these from outside the package."""

from __future__ import annotations

import csv
import re
import runpy
import sys

import numpy as np
import pytest
from _support.paths import REPOSITORY
from scipy import stats

EXAMPLES = REPOSITORY / "examples"


@pytest.fixture
def printed(capsys, monkeypatch):
    """Return what an example prints."""

    def run(name):
        monkeypatch.setattr(sys, "argv", [name])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_anchors_are_placed_where_their_scores_are(printed):
    text = printed("anchor_models_aime.py")
    with (EXAMPLES / "matharena_aime_2025_II.csv").open(encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    right = np.array([row[1:] for row in rows], int)
    assert right.shape == (60, 19)
    pattern = r"^(.{29}) (0\.\d{3}) +(\d+)–(\d+) +(\d+) \(.*?\) +(\d+) \("
    lines = re.findall(pattern, text, re.MULTILINE)
    scores = {name.strip(): float(score) for name, score, *_ in lines}
    assert scores == pytest.approx(dict(zip(header[1:], right.mean(axis=0), strict=True)), abs=5e-4)
    positions = np.array([line[2:] for line in lines], int)
    low, high = positions[:, 0], positions[:, 1]
    # as many of the other 18 as have a lower score
    expected = (right.sum(axis=0)[:, None] > right.sum(axis=0)).sum(axis=1)
    assert dict(zip(scores, low, strict=True)) == dict(zip(header[1:], expected, strict=True))
    inside = ((low[:, None] <= positions[:, 2:]) & (positions[:, 2:] <= high[:, None])).sum(axis=0)
    counted = re.search(r"for (\d+) \(query\) and (\d+) \(shared\)", text)
    assert inside.tolist() == [int(counted[1]), int(counted[2])]
    assert inside.min() >= 8


def test_posteriors_of_counts_hold_the_mean_of_all_trials(printed):
    text = printed("posterior_from_counts.py")
    with (EXAMPLES / "counts128_aime24_amc23.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if line[0] != "#"))
    number = r" +([\d.]+)"
    pattern = rf"^\S+ +\d+{number}{number}" + rf"{number}–([\d.]+)" * 3 + rf"{number}$"
    shown = np.array(re.findall(pattern, text, re.MULTILINE), float)
    assert shown.shape == (4, 9)
    for column, all_trials, eight in zip(("c_base", "c_rl"), shown[:2], shown[2:], strict=True):
        right = np.array([int(row[column]) for row in rows if row["source"] == "aime24"])
        share = right / 128
        average, mean, low, high, other_low, other_high, _, _, pass_8 = all_trials
        assert average == pytest.approx(share.mean(), abs=5e-4)
        # 128 trials leave the prior little to say: the CLT within questions
        half = 1.96 * np.sqrt((share * (1 - share)).sum() / 127) / right.size
        clt = (share.mean(), share.mean() - half, share.mean() + half)
        assert (mean, low, high) == pytest.approx(clt, abs=1.5e-3)
        assert other_low < low < high < other_high
        assert pass_8 == pytest.approx(1 - stats.hypergeom.pmf(0, 128, right, 8).mean(), abs=5e-4)
        assert eight[2] < share.mean() < eight[3]
        assert eight[6] < pass_8 < eight[7]
