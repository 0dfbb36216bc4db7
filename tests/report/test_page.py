"""The report: what stands in the page, that it is whole, and that nobody's words get out of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections import Counter
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from scipy import stats

from lm_eval_bayes import Outcomes, hbayes_at_n
from lm_eval_bayes.analysis.report_data import report_data
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.report.page.render import MARK, render
from lm_eval_bayes.report.page.tables import question_table
from lm_eval_bayes.runs.task_run import Provenance, SavedRuns, TaskRun
from lm_eval_bayes.stats.intervals import IntervalSpec

#: Elements that HTML does not close.
VOID = {"meta", "wbr", "br", "link", "img", "input", "hr"}
#: Closes elements and attributes, turns text, is no character, is half of one.
HOSTILE = (
    "</title></style></script><script>window.injected=1</script>"
    "<img src=x onerror=window.injected=2>\"'`--><!-- {{ 7*7 }} {% raw %} &amp; \u202etxet\u2066"
    "\x00\x1b[31m\ud800\uffff\u2028"
)


class Page(HTMLParser):
    """A page's elements, with their attributes, and the text in each."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.scripts, self.text = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), []))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1].append(data)
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def said(self):
        return " ".join("".join(self.text).split())

    def data(self):
        (found,) = (
            "".join(text) for attrs, text in self.scripts if attrs.get("id") == "report-data"
        )
        return json.loads(found)


def trials(p, n, seed):
    rng = np.random.default_rng(seed)
    return [(rng.random(n) < one).astype(int) for one in p]


def run(model="a/one", task="aime", n=8, m=6, seed=0, p=None, tokens=100.0, **more):
    p = np.linspace(0.1, 0.9, m) if p is None else p
    ids = more.pop("ids", [f"{task}-{q}" for q in range(len(p))])
    measured = {} if tokens is None else {"completion_tokens": (np.full(n, tokens),) * len(p)}
    more.setdefault("questions", tuple(f"What is {q} + {q}?" for q in range(len(p))))
    return TaskRun.from_trials(model, task, trials(p, n, seed), ids, measured=measured, **more)


def page_of(*runs, saved=None, **more):
    contents = report_data(
        SavedRuns(tuple(runs)) if saved is None else saved, IntervalSpec.of(**more)
    )
    return render(contents), contents


@pytest.fixture(scope="module")
def usual():
    """Three models on two tasks."""
    runs = [
        run(model, task, seed=10 * i + j, p=np.clip(np.linspace(0, 1, 6) + 0.12 * i, 0.02, 0.98))
        for i, model in enumerate(["lab/low", "lab/mid", "lab/high"])
        for j, task in enumerate(["first", "second"])
    ]
    return page_of(*runs)


# -- the numbers ---------------------------------------------------------------------------------


def test_at_one_trial_the_interval_about_questions_like_these_is_that_of_a_beta():
    # 12 of 30 right at N = 1: Beta(1 + 12, 1 + 18) exactly [Bowyer 2025, eq. 7]
    one = TaskRun.from_trials("m", "t", [[1]] * 12 + [[0]] * 18, [f"{q}" for q in range(30)])
    page, _ = page_of(one, scope="population")
    low, high = stats.beta.ppf([0.025, 0.975], 13, 19)
    (board,) = Page(page).data()["leaderboards"]
    interval = board["places"][0]["interval"]
    assert [interval["low"], interval["high"]] == pytest.approx([low, high], abs=2e-5)
    said = Page(page).said()
    assert f"{100 * low:.1f} – {100 * high:.1f}" in said
    assert f"{100 * 13 / 32:.1f} ± {100 * stats.beta.std(13, 19):.1f}" in said


def test_models_on_different_questions_are_never_ranked_with_each_other():
    a = TaskRun.from_trials("A", "t", [[1]] * 12 + [[0]] * 8, [f"{q}" for q in range(20)])
    b = TaskRun.from_trials("B", "t", [[1]] * 9 + [[0]] * 12, [f"other {q}" for q in range(21)])
    page, contents = page_of(a, b)
    assert [panel.models for panel in contents.panels] == [("A",), ("B",)]
    assert Page(page).said().count("answered other questions of this task") == 2
    assert "Pairwise comparison" not in page


def test_a_curve_is_the_posterior_of_the_first_trials(usual):
    _, contents = usual
    panel = contents.panels[0]
    for found, one in zip(panel.curves, panel.runs, strict=True):
        matrix = np.stack(one.trials)
        for n, mu, low, high in zip(found.n, found.mu, found.low, found.high, strict=True):
            posterior = hbayes_at_n(Outcomes.from_matrix(matrix[:, :n]))
            interval = posterior.interval(0.95, "exact")
            assert mu == pytest.approx(posterior.mu, abs=1e-12)
            assert (low, high) == pytest.approx((interval.low, interval.high), abs=0.012)
        assert found.n == tuple(range(1, 9))
        assert found.mu[-1] == panel.board.rows[panel.models.index(one.model)].posterior.mu


def test_the_frontier_is_those_that_no_model_beats():
    rng = np.random.default_rng(5)
    runs = [
        run(f"m{i}", p=np.full(4, rng.random()), seed=i, tokens=float(rng.integers(1, 9)))
        for i in range(9)
    ]
    _, contents = page_of(*runs)
    costs = contents.panels[0].costs
    points = [(one.tokens, -one.mu) for one in costs]
    for one, mine in zip(costs, points, strict=True):
        beaten = any(p != mine and p[0] <= mine[0] and p[1] <= mine[1] for p in points)
        assert one.frontier is not beaten


def test_questions_are_matched_by_their_ids_whatever_their_order():
    p = np.array([0.05, 0.5, 0.95])
    one = run("A", p=p, ids=["x", "y", "z"], n=30)
    two = TaskRun.from_trials("B", "aime", list(one.trials[::-1]), ["z", "y", "x"])
    _, contents = page_of(one, two)
    shown = question_table(contents.panels[0], contents).rows
    assert [question.name for question in shown] == ["x", "y", "z"]
    for question in shown:
        assert question.cells[0] == question.cells[1]
        right = int(one.trials["xyz".index(question.name)].sum())
        assert question.cells[0].counted == f"{right} of 30 right"


def test_the_mean_of_tasks_has_the_sd_of_independent_scores(usual):
    _, contents = usual
    for group in contents.groups:
        own = [one for one in contents.summaries if one.run.model == group.model]
        sd = np.sqrt(sum((0.5 * one.learned["benchmark"].sigma) ** 2 for one in own))
        assert group.means["equal"].learned["benchmark"].sigma == pytest.approx(sd, rel=1e-12)


# -- the page ------------------------------------------------------------------------------------


def check_whole(page):
    """Check what every page must be."""
    found = Page(page)
    assert found.open == []
    assert page.startswith("<!doctype html>")
    assert MARK in page[:4096]
    page.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff\u202a-\u202e]", page)
    ids = Counter(attrs["id"] for _, attrs in found.elements if "id" in attrs)
    assert [name for name, n in ids.items() if n > 1] == []
    for tag, attrs in found.elements:
        assert "style" not in attrs
        assert not [name for name in attrs if name.startswith("on")]
        assert "src" not in attrs
        assert "action" not in attrs
        assert tag not in {"link", "iframe", "img"}
        if "href" in attrs:
            assert attrs["href"][0] == "#"
            assert attrs["href"][1:] in ids
        for name in ("popovertarget", "aria-labelledby"):
            for target in attrs.get(name, "").split():
                assert target in ids
        if tag == "svg" and "aria-hidden" not in attrs and attrs.get("class") != "stretched":
            assert attrs["role"] == "img"
            assert attrs.get("aria-label") or attrs.get("aria-labelledby")
        if attrs.get("role") == "region":
            assert attrs["aria-label"]
            assert attrs["tabindex"] == "0"
    return found


def test_the_page_is_one_whole_file(usual):
    page, _ = usual
    found = check_whole(page)
    policy = next(
        m["content"] for m in found.all("meta") if m.get("http-equiv") == "Content-Security-Policy"
    )
    style = re.search("<style>(.*?)</style>", page, re.DOTALL).group(1)
    script = re.search("<script>(.*?)</script>", page, re.DOTALL).group(1)
    digests = [
        base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (style, script)
    ]
    assert policy.split("; ")[:3] == [
        "default-src 'none'",
        f"style-src 'sha256-{digests[0]}'",
        f"script-src 'sha256-{digests[1]}'",
    ]
    assert len(found.scripts) == 2
    assert "http" not in re.sub("http-equiv", "", style + script)


def test_all_of_it_is_there(usual):
    page, contents = usual
    said = Page(page).said()
    for told in (
        "Pairwise comparison",
        "Questions",
        "Convergence",
        "Cost",
        "Estimates",
        "Provenance",
        "How to read this report",
        "What is 3 + 3?",
        "pass@4",
    ):
        assert told in said
    assert "Rubrics" not in said
    assert [panel.task for panel in contents.panels] == ["first", "second"]
    data = Page(page).data()
    assert [board["task"] for board in data["leaderboards"]] == ["first", "second"]
    assert data["level"] == 0.95
    heads = [attrs for tag, attrs in Page(page).elements if tag == "th" and "aria-sort" in attrs]
    assert heads


def test_the_leader_is_said_in_a_sentence():
    sure = [run("good", p=np.full(9, 0.9), n=30), run("poor", p=np.full(9, 0.1), n=30, seed=1)]
    said = Page(page_of(*sure)[0]).said()
    assert "good is the best with >99% probability" in said
    alike = [run(f"m{i}", p=np.full(9, 0.5), n=3, seed=i) for i in range(7)]
    said = Page(page_of(*alike)[0]).said()
    assert "the trials do not separate it from" in said
    assert "3 more models" in said
    said = Page(page_of(alike[0])[0]).said()
    assert re.search(r"m0 scores \d+\.\d% \(\d", said)


def test_what_is_not_known_is_left_out():
    counts = Outcomes.from_counts([[3, 5], [8, 0]], question_ids=("p", "q"))
    page, _ = page_of(TaskRun("m", "t", ("counts.csv",), counts))
    check_whole(page)
    said = Page(page).said()
    for told in ("Convergence", "Cost", "Pairwise comparison"):
        assert told not in said
    assert "The text of this question was not saved" in said


def test_categories_with_scores_of_their_own():
    rng = np.random.default_rng(3)
    runs = [
        TaskRun.from_trials(m, "t", rng.integers(0, 3, (5, 6)), list("abcde"), (-1.0, 0.25, 2.0))
        for m in ("A", "B")
    ]
    page, _ = page_of(*runs, interval="beta")
    found = check_whole(page)
    assert "percent" not in found.said().partition("How to read this report")[0].replace(
        "probability, in percent,", ""
    )
    assert "× -1" in found.said()


def test_uneven_trials_and_one_question_and_nothing_answered():
    uneven = TaskRun.from_trials("A", "t", [[1, 0, 1], [1], [0, 0]], ["p", "q", "r"])
    single = TaskRun.from_trials("B", "u", [[1]], ["p"])
    page, contents = page_of(uneven, single)
    check_whole(page)
    assert "1 to 3" in Page(page).said()
    assert contents.panels[0].curves[0].n == (1,)


@pytest.mark.parametrize("bad", [{"level": 1.0}, {"interval": "best"}, {"seed": -1}])
def test_bad_arguments_are_named(bad):
    with pytest.raises(InvalidInputError, match=r"`(level|interval|seed)` must"):
        report_data(SavedRuns((run(),)), IntervalSpec.of(**bad))


def test_many_questions_are_cut_with_a_word_about_it():
    rng = np.random.default_rng(0)
    runs = [
        TaskRun.from_trials(m, "t", rng.integers(0, 2, (3000, 1)), [f"q{i}" for i in range(3000)])
        for m in ("A", "B")
    ]
    page, contents = page_of(*runs)
    shown = question_table(contents.panels[0], contents)
    assert len(shown.rows) == 300
    assert "the 300 of 3,000 on which models differ most" in page
    assert len(page) < 1_000_000


# -- somebody else's words -----------------------------------------------------------------------


def test_nobody_gets_out_of_the_text():
    made = Provenance(
        backend=HOSTILE,
        model_args={HOSTILE: HOSTILE, "tokenizer": HOSTILE, "hf_overrides": {"a": [HOSTILE]}},
        generation_kwargs={"until": [HOSTILE]},
        metadata={HOSTILE: 1.0, "x": float("nan")},
        versions={HOSTILE: HOSTILE},
        dataset=HOSTILE,
        revision=HOSTILE,
        config={"doc_to_text": HOSTILE},
    )
    more = {
        "provenance": made,
        "ids": [f"{q}{HOSTILE}" for q in range(6)],
        "questions": (HOSTILE,) * 6,
        "notes": (HOSTILE,),
        "metric": HOSTILE,
        "filter": HOSTILE,
        "sources": (f"/home/me/{HOSTILE}/samples.jsonl",),
        "prompt_hashes": (HOSTILE,) * 6,
    }
    runs = [
        run(f"{HOSTILE}{i}", task, seed=i, **more)
        for i in range(2)
        for task in (HOSTILE, f"{HOSTILE}2")
    ]
    saved = SavedRuns(tuple(runs), {HOSTILE: (HOSTILE, f"{HOSTILE}2")}, (HOSTILE,))
    contents = report_data(saved)
    for title in ("", HOSTILE):
        page = render(contents, title=title)
        found = check_whole(page)
        assert len(found.scripts) == 2
        assert "<script>window" not in page
        assert "<img" not in page
        assert "{{ 7*7 }}" in page
        assert "<script>window.injected=1</script>" in found.said()
        assert r"\u202e" in found.said()
        assert r"\x00" in found.said()
        assert r"\ud800" in found.said()
        data = found.data()
        assert data["warnings"] == [HOSTILE]
        assert "/home/me" not in page


def test_five_megabytes_of_a_question_are_shortened():
    whole = "7" * 5_000_000
    one = run(
        questions=(whole,) * 6,
        provenance=Provenance(model_args={"tokenizer": whole}, config={"y": whole}),
        notes=(whole,),
        model=whole,
    )
    began = time.perf_counter()
    page, _ = page_of(one)
    assert time.perf_counter() - began < 5.0
    check_whole(page)
    assert len(page) < 300_000
    assert "4,996,000 more characters are not shown" in page
    assert "(4,998,000 more characters)" in page


def test_keys_and_passwords_are_not_shown_around():
    made = Provenance(
        model_args={
            "pretrained": "phi",
            "api_key": "abc-secret",
            "hf_token": "abc-secret",
            "eos_token": "<eos>",
            "use_auth_token": True,
            "header": {"Authorization": "abc-secret"},
            "base_url": "https://me:abc-secret@host/v1",
        },
        metadata={"key": "hf_abcdefghijklmnopqrstu"},
        config={"password": "abc-secret"},
    )
    page, _ = page_of(run(provenance=made))
    said = Page(page).said()
    assert "abc-secret" not in page
    assert "hf_abc" not in page
    assert "<eos>" in said
    assert "phi" in said
    assert "https://host/v1" in said


# -- what it looks like --------------------------------------------------------------------------


def luminance(colour):
    colour = colour.lstrip("#")
    colour = "".join(2 * c for c in colour) if len(colour) == 3 else colour
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, other):
    """Return the contrast of two colours as WCAG 2.2 defines it."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_all_letters_contrast_with_what_is_behind_them():
    package = resources.files("lm_eval_bayes.report.page")
    sheet = (package / "templates" / "report.css").read_text(encoding="utf-8")
    shades = re.findall(r"\.[hd]\d+ ?\{ ?background: ?(#\w+); ?color: ?(#\w+);? ?\}", sheet)
    assert len(shades) == 21 + 2 * 21
    assert min(contrast(*one) for one in shades) >= 4.5
    blocks = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)[:2]
    assert len(blocks) == 2
    for block in blocks:
        colours = dict(re.findall(r"--([\w-]+): (#\w{6});", block))
        for letters in ("ink", "soft", "faint", "accent-ink"):
            for behind in ("sheet", "page", "sunk"):
                assert contrast(colours[letters], colours[behind]) >= 4.5, (letters, behind)
        for drawn in ("accent", "accent-bar", "warm"):
            assert contrast(colours[drawn], colours["sheet"]) >= (2.5 if drawn[6:] else 3.0)


@pytest.mark.slow
def test_twenty_models_on_four_tasks_take_seconds():
    texts = tuple("Let ABC be a triangle. " * 40 for _ in range(30))
    runs = [
        run(f"lab/model-{i}", f"task {t}", n=80, seed=100 * t + i, m=30, questions=texts)
        for i in range(20)
        for t in range(4)
    ]
    began = time.process_time()
    page, _ = page_of(*runs)
    assert time.process_time() - began < 15.0
    assert len(page.encode()) < 5_000_000
