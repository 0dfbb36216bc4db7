"""The table of docs/differs.md is what its script prints, and its formulas are the usual ones."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from _support.paths import REPOSITORY
from scipy import stats

from lm_eval_bayes import Outcomes, bayes_at_n, clt_interval
from lm_eval_bayes.stats import within_question_clt


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples"))
    return importlib.import_module("intervals_elsewhere")


def test_a_row_of_the_page_is_made_again(script):
    cells = [script.cell(shape, 15, 1, script.REPLICATES) for shape in script.SHAPES]
    page = (REPOSITORY / "examples/docs/differs.md").read_text(encoding="utf-8")
    table = [
        [text.strip() for text in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("|")
    ]
    (names,) = (row for row in table if row[0] == "30 × 4")
    (row,) = (row for row in table if row[0] == "all, 15 × 1")
    assert row[1] == "–"
    shown = dict(zip(names, row, strict=True))
    for name in ("Bayes@N", "`hbayes@N`", "CLT over questions", "Wilson", "`hbayes@N_population`"):
        held, width, score = map(float, shown[name].split("/"))
        coverage, *rest = np.mean([cell[name] for cell in cells], axis=0)
        assert held == pytest.approx(100 * coverage, abs=0.6)
        assert (width, score) == pytest.approx(tuple(rest), abs=0.006)


def test_the_formulas_are_the_usual_ones(script):
    right = np.random.default_rng(0).binomial(4, 0.3, (3, 12))
    for name in ("clt_within", "clt_over", "wilson", "bayes_at_n"):
        ends = np.transpose(getattr(script, name)(right, 4))
        for counts, found in zip(right, ends, strict=True):
            outcomes = Outcomes.from_counts(np.stack([4 - counts, counts], axis=1))
            expected = {
                "clt_within": lambda o=outcomes: within_question_clt(o),
                "bayes_at_n": lambda o=outcomes: bayes_at_n(o).interval(0.95, "normal"),
                "clt_over": lambda c=counts: clt_interval(c / 4),
                "wilson": lambda c=counts: stats.binomtest(int(c.sum()), 48).proportion_ci(
                    method="wilson"
                ),
            }[name]()
            assert tuple(found) == pytest.approx((expected.low, expected.high), abs=1e-12)
