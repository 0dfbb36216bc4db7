"""The report: what stands in the page, that it is whole, and that nobody's words get out of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from scipy import stats

from lm_eval_bayes import Outcomes, hbayes_at_n
from lm_eval_bayes.analysis.board import task_board
from lm_eval_bayes.analysis.leaderboard import leaderboard
from lm_eval_bayes.analysis.report_data import model_costs, report_data
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

    def visible_text(self):
        return " ".join("".join(self.text).split())

    def data(self):
        (result,) = (
            "".join(text) for attrs, text in self.scripts if attrs.get("id") == "report-data"
        )
        return json.loads(result)


def trials(p, n, seed):
    rng = np.random.default_rng(seed)
    return [(rng.random(n) < item).astype(int) for item in p]


def run(model="a/one", task="aime", n=8, m=6, seed=0, p=None, tokens=100.0, **more):
    p = np.linspace(0.1, 0.9, m) if p is None else p
    ids = more.pop("ids", [f"{task}-{q}" for q in range(len(p))])
    measured = {} if tokens is None else {"completion_tokens": (np.full(n, tokens),) * len(p)}
    more.setdefault("questions", tuple(f"What is {q} + {q}?" for q in range(len(p))))
    return TaskRun.from_trials(model, task, trials(p, n, seed), ids, measured=measured, **more)


def data_of(*runs, interval="normal", **settings):
    return report_data(SavedRuns(tuple(runs)), IntervalSpec.of(interval=interval, **settings))


def page_of(*runs, **settings):
    contents = data_of(*runs, **settings)
    return render(contents), contents


@pytest.fixture(scope="module")
def usual():
    """Two models on two tasks."""
    runs = [
        run(
            model, task, n=5, seed=10 * i + j, p=np.clip(np.linspace(0, 1, 6) + 0.2 * i, 0.02, 0.98)
        )
        for i, model in enumerate(["lab/low", "lab/high"])
        for j, task in enumerate(["first", "second"])
    ]
    return page_of(*runs, interval="exact")


# -- the numbers ---------------------------------------------------------------------------------


def test_the_interval_about_questions_like_these_is_that_of_the_posterior():
    # 12 of 30 right at N = 1
    item = TaskRun.from_trials("m", "t", [[1]] * 12 + [[0]] * 18, [f"{q}" for q in range(30)])
    page, _ = page_of(item, scope="population", interval="exact")
    posterior = hbayes_at_n(item.outcomes, "population")
    low, high = posterior.interval().low, posterior.interval().high
    assert [low, high] == pytest.approx(stats.beta.ppf([0.025, 0.975], 12.7, 18.7), abs=0.01)
    (board,) = Page(page).data()["leaderboards"]
    interval = board["places"][0]["interval"]
    assert [interval["low"], interval["high"]] == [low, high]
    visible_text = Page(page).visible_text()
    assert f"{posterior.mu:.3f} {low:.3f}–{high:.3f}" in visible_text


def test_models_on_different_questions_are_never_ranked_with_each_other():
    a = TaskRun.from_trials("A", "t", [[1]] * 12 + [[0]] * 8, [f"{q}" for q in range(20)])
    b = TaskRun.from_trials("B", "t", [[1]] * 9 + [[0]] * 12, [f"other {q}" for q in range(21)])
    page, contents = page_of(a, b)
    assert [panel.board.models for panel in contents.panels] == [("A",), ("B",)]
    assert Page(page).visible_text().count("answered other questions of this task") == 2
    assert "distinguishable" not in Page(page).visible_text()


def test_a_curve_is_the_posterior_of_the_first_trials(usual):
    _, contents = usual
    panel = contents.panels[0]
    for result, item in zip(panel.curves, panel.runs, strict=True):
        matrix = np.stack(item.trials)
        for point in result:
            posterior = hbayes_at_n(Outcomes.from_matrix(matrix[:, : point.n]))
            interval = posterior.interval(0.95, "exact")
            assert point.mu == pytest.approx(posterior.mu, abs=1e-12)
            ends = (interval.low, interval.high)
            assert (point.interval.low, point.interval.high) == pytest.approx(ends, abs=1e-12)
        assert [point.n for point in result] == [1, 2, 4, 5]
        assert result[-1].mu == panel.board.rows[panel.board.models.index(item.model)].posterior.mu


def test_of_many_models_the_best_have_curves():
    ids = ["x", "y", "z"]
    runs = [
        TaskRun.from_trials(f"m{i}", "t", [[1] * (i % 3) + [0] * (2 - i % 3)] * 3, ids)
        for i in range(26)
    ]
    page, contents = page_of(*runs)
    (panel,) = contents.panels
    assert [curve[-1].n for curve in panel.curves] == [2] * 8
    for curve, row in zip(panel.curves, panel.board.rows, strict=False):
        assert curve[-1].mu == row.mu
    assert len(re.findall('id="convergence-1-[0-9]+-title"', page)) == 8


def test_the_frontier_is_those_that_no_model_beats():
    rng = np.random.default_rng(5)
    runs = [
        run(f"m{i}", n=4, p=np.full(5, rng.random()), seed=i, tokens=float(rng.integers(1, 9)))
        for i in range(6)
    ]
    by_model = {item.model: item for item in runs}
    board = leaderboard(runs, IntervalSpec(method="normal"))
    costs = model_costs(board, [by_model[model] for model in board.models])
    points = [(item.tokens, -item.row.mu) for item in costs]
    for item, point in zip(costs, points, strict=True):
        beaten = any(p != point and p[0] <= point[0] and p[1] <= point[1] for p in points)
        assert item.frontier is not beaten


def test_questions_are_matched_by_their_ids_whatever_their_order():
    p = np.array([0.05, 0.5, 0.95])
    item = run("A", p=p, ids=["x", "y", "z"], n=9)
    two = TaskRun.from_trials("B", "aime", list(item.trials[::-1]), ["z", "y", "x"])
    contents = data_of(item, two)
    shown = question_table(contents.panels[0], contents).rows
    assert [question.name for question in shown] == ["z", "y", "x"]
    for question in shown:
        assert question.cells[0] == question.cells[1]
        right = int(item.trials["xyz".index(question.name)].sum())
        assert question.cells[0].counted == f"{right} of 9 right"


# -- the page ------------------------------------------------------------------------------------


def check_whole(page):
    """Check what every page must be."""
    result = Page(page)
    assert result.open == []
    assert page.startswith("<!doctype html>")
    assert MARK in page[:4096]
    page.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff\u202a-\u202e]", page)
    ids = Counter(attrs["id"] for _, attrs in result.elements if "id" in attrs)
    assert [name for name, n in ids.items() if n > 1] == []
    for tag, attrs in result.elements:
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
    return result


def test_the_page_is_one_whole_file(usual):
    page, _ = usual
    result = check_whole(page)
    policy = next(
        m["content"] for m in result.all("meta") if m.get("http-equiv") == "Content-Security-Policy"
    )
    style = re.search("<style>(.*?)</style>", page, re.DOTALL).group(1)
    script = re.search("<script>(.*?)</script>", page, re.DOTALL).group(1)
    digests = [
        base64.b64encode(hashlib.sha256(item.encode()).digest()).decode()
        for item in (style, script)
    ]
    assert policy.split("; ")[:3] == [
        "default-src 'none'",
        f"style-src 'sha256-{digests[0]}'",
        f"script-src 'sha256-{digests[1]}'",
    ]
    assert len(result.scripts) == 3
    assert "http" not in re.sub("http-equiv", "", style + script)


def test_questions_show_the_ids_of_the_task():
    page, _ = page_of(run(ids=["c3", "c1", "c2"], p=(0.9, 0.5, 0.1), questions=("What?", "", "")))
    buttons = re.findall(r'<button type="button" class="question"[^>]*>(.*?)</button>', page)
    words = [" ".join(re.sub("<[^>]*>", " ", button).split()) for button in buttons]
    assert words == ["c3", "c1", "c2"]


def test_the_page_shows_posteriors_of_pass_at_k_and_no_estimates():
    """The unbiased estimate of a model that is nearly always right may lie above the interval."""
    ids = [f"q{question}" for question in range(6)]
    item = TaskRun.from_trials("m", "t", [[1, 1, 0, 0]] * 6, ids)
    page, contents = page_of(item, interval="exact")
    (summary,) = contents.summaries
    posterior = summary.family["hpass@4"]
    mean = posterior.mu
    assert summary.rows["pass@4"] == 1.0 > posterior.interval().high > mean
    assert f"{mean:.3f} ± {posterior.sigma:.3f}" in Page(page).visible_text()
    assert set(summary.family) <= set(re.findall("<th [^>]*>(h[^<]*)</th>", page))


def test_all_of_it_is_there(usual):
    page, _ = usual
    visible_text = Page(page).visible_text()
    sections = re.findall("<h2[^>]*>(?:<bdi>)?([^<]*)", page)
    panel = ["Scores", "Difference", "Questions", "Pass@k and Pass^k", "Convergence", "Cost"]
    assert sections == [
        *("Warnings", "Scores", "Distinguishable pairs", "first", *panel, "second", *panel),
        "How it was made",
    ]
    assert "What is 3 + 3?" in visible_text
    assert "pass@4" in visible_text
    data = Page(page).data()
    assert [board["task"] for board in data["leaderboards"]] == ["first", "second"]


def test_the_headline_is_the_sentence_of_the_board(usual):
    page, contents = usual
    (headline,) = re.findall(r"<h1>(.*?)</h1>", page)
    assert headline == contents.overall.headline({"lab/low": "low", "lab/high": "high"})
    expected = np.mean([[row.mu for row in p.board.rows] for p in contents.panels], axis=0)
    means = [row.mu for row in contents.overall.leaderboard.rows]
    assert means == pytest.approx(expected.tolist(), abs=0.02)
    single = run("poor", p=np.full(9, 0.1), seed=1)
    (headline,) = re.findall(r"<h1>(.*?)</h1>", page_of(single)[0])
    assert headline == task_board([single], IntervalSpec(method="normal")).headline()


@pytest.mark.parametrize("means", [(30, 10), (20, 21), (20, 20, 21), (36, 22, 21, 4)])
def test_the_squares_are_the_pairs_of_the_ranking(means):
    trials_of = [[[1] * right + [0] * (40 - right)] * 20 for right in means]
    ids = [f"q{i}" for i in range(20)]
    runs = [TaskRun.from_trials(f"m{i}", "t", t, ids) for i, t in enumerate(trials_of)]
    page, contents = page_of(*runs)
    separated = int(contents.panels[0].board.ranking.simultaneous.separated.sum())
    tied = [1 for i, a in enumerate(means) for b in means[:i] if abs(a - b) <= 1]
    n_pairs = len(means) * (len(means) - 1) // 2
    assert separated == n_pairs - len(tied)
    if len(means) > 2:
        assert len(re.findall(r'<td class="y"', page)) == separated
        assert len(re.findall(r'<td class="n"', page)) == len(tied)
        assert f"{separated} of {n_pairs} pairs" in page
    apart = re.findall(r'data-apart="([^"]*)"', page)
    assert sum(len(indices.split()) for indices in apart) == 2 * separated


def test_cells_have_the_right_trials_of_all():
    page, _ = page_of(run("a", n=4, p=(0.0, 0.5, 1.0)), run("b", n=4, p=(0.0, 0.5, 1.0), seed=3))
    cells = re.findall(r'<td class="k(\d)">(\d+)<em>/4</em></td>', page)
    assert len(cells) == 6
    assert {shade for shade, right in cells if right == "4"} == {"4"}
    assert {shade for shade, right in cells if right == "0"} == {"0"}
    assert all("1" <= shade <= "3" for shade, right in cells if right in "123")
    total = sum(int(right) for _, right in cells)
    sums = re.findall(r'<td class="sum">(\d+)/12</td>', page)
    assert sum(map(int, sums)) == total


def test_what_is_not_known_is_left_out():
    counts = Outcomes.from_counts([[3, 5], [8, 0]], question_ids=("p", "q"))
    page, _ = page_of(TaskRun("m", "t", ("counts.csv",), counts))
    check_whole(page)
    visible_text = Page(page).visible_text()
    assert "Convergence" not in visible_text
    assert "The runs have no tokens" in visible_text
    assert visible_text.count("not known from one setting") == 1
    assert "The text of this question was not saved" in visible_text


def test_categories_with_scores_of_their_own():
    rng = np.random.default_rng(3)
    runs = [
        TaskRun.from_trials(m, "t", rng.integers(0, 3, (5, 6)), list("abcde"), (-1.0, 0.25, 2.0))
        for m in ("A", "B")
    ]
    page, _ = page_of(*runs)
    result = check_whole(page)
    assert "× -1" in result.visible_text()


def test_uneven_trials_and_one_question_and_nothing_answered():
    uneven = TaskRun.from_trials("A", "t", [[1, 0, 1], [1], [0, 0]], ["p", "q", "r"])
    single = TaskRun.from_trials("B", "u", [[1]], ["p"])
    page, contents = page_of(uneven, single)
    check_whole(page)
    assert "1 to 3 trials each" in Page(page).visible_text()
    assert [point.n for point in contents.panels[0].curves[0]] == [1]


def test_many_questions_are_cut_with_a_word_about_it():
    rng = np.random.default_rng(0)
    runs = [
        TaskRun.from_trials(m, "t", rng.integers(0, 2, (400, 1)), [f"q{i}" for i in range(400)])
        for m in ("A", "B")
    ]
    page, contents = page_of(*runs)
    shown = question_table(contents.panels[0], contents)
    assert len(shown.rows) == 300
    assert "the 300 of 400 on which models differ most" in page
    assert len(page) < 1_000_000


# -- somebody else's words -----------------------------------------------------------------------


def test_nobody_gets_out_of_the_text():
    build = Provenance(
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
        "provenance": build,
        "ids": [f"{q}{HOSTILE}" for q in range(6)],
        "questions": (HOSTILE,) * 6,
        "notes": (HOSTILE,),
        "metric": HOSTILE,
        "filter": HOSTILE,
        "sources": (f"/home/me/{HOSTILE}/samples.jsonl",),
        "prompt_hashes": (HOSTILE,) * 6,
        "settings": (HOSTILE, f"/home/me/{HOSTILE}"),
        "setting": (np.array([0, 1]),) * 6,
    }
    runs = [
        run(f"{HOSTILE}{i}", task, n=2, seed=i, **more)
        for i in range(2)
        for task in (HOSTILE, f"{HOSTILE}2")
    ]
    saved = SavedRuns(tuple(runs), {HOSTILE: (HOSTILE, f"{HOSTILE}2")}, (HOSTILE,))
    contents = report_data(saved, IntervalSpec(method="normal"))
    for title in ("", HOSTILE):
        page = render(contents, title=title)
        result = check_whole(page)
        assert len(result.scripts) == 3
        assert "<script>window" not in page
        assert "<img" not in page
        assert "{{ 7*7 }}" in page
        assert "<script>window.injected=1</script>" in result.visible_text()
        assert r"\u202e" in result.visible_text()
        assert r"\x00" in result.visible_text()
        assert r"\ud800" in result.visible_text()
        data = result.data()
        assert data["warnings"] == [HOSTILE]
        assert "/home/me" not in page


def test_a_megabyte_of_a_question_is_shortened():
    complete = "7" * 1_000_000
    item = run(
        questions=(complete,) * 6,
        provenance=Provenance(model_args={"tokenizer": complete}, config={"y": complete}),
        notes=(complete,),
        model=complete,
    )
    page, _ = page_of(item)
    check_whole(page)
    assert len(page) < 300_000
    assert "996,000 more characters are not shown" in page
    assert "(998,000 more characters)" in page


def test_keys_and_passwords_are_not_shown_around():
    build = Provenance(
        model_args={
            "pretrained": "phi",
            "eos_token": "<eos>",
            "header": {"Authorization": "abc-secret"},
            "endpoints": [{"url": "https://second?k=abc-secret"}],
        },
        generation_kwargs={"webhook": "see https://me:abc-secret@hook/x?sig=abc-secret for it"},
        dataset="https://me:abc-secret@hub/data?token=abc-secret",
        backend="openai at https://me:abc-secret@third/v1?key=abc-secret",
        metadata={"key": "hf_abcdefghijklmnopqrstu"},
        config={"password": "abc-secret"},
    )
    page, _ = page_of(run(provenance=build))
    visible_text = Page(page).visible_text()
    assert "abc-secret" not in page
    assert "hf_abc" not in page
    assert "<eos>" in visible_text
    assert "phi" in visible_text
    for place in ("https://hook/x", "https://hub/data", "https://third/v1"):
        assert place in visible_text


def test_a_plot_that_would_show_nothing_is_left_out():
    single = page_of(run("a", n=1, tokens=10.0), run("b", n=1, seed=1, tokens=10.0))[0]
    assert ">Convergence<" not in single
    assert 'id="cost-1"' not in single
    both = page_of(run("a", n=2, tokens=10.0), run("b", n=2, seed=1, tokens=20.0))[0]
    assert ">Convergence<" in both
    assert 'id="cost-1-title' in both


# -- what it looks like --------------------------------------------------------------------------


def luminance(colour):
    colour = colour.lstrip("#")
    colour = "".join(2 * c for c in colour) if len(colour) == 3 else colour
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(item, other):
    """Return the contrast of two colours as WCAG 2.2 defines it."""
    low, high = sorted(map(luminance, (item, other)))
    return (high + 0.05) / (low + 0.05)


def test_all_letters_contrast_with_what_is_behind_them():
    package = resources.files("lm_eval_bayes.report.page")
    sheet = (package / "templates" / "report.css").read_text(encoding="utf-8")
    shades = re.findall(r"\.k\d \{ background: (#\w{6}); color: (#\w{6}); \}", sheet)
    assert len(shades) == 2 * 5
    assert min(contrast(*item) for item in shades) >= 4.5
    blocks = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)[:2]
    assert len(blocks) == 2
    for block in blocks:
        colours = dict(re.findall(r"--([\w-]+): (#\w{6});", block))
        for letters in ("ink", "soft", "lead"):
            for behind in ("page", "sunk"):
                assert contrast(colours[letters], colours[behind]) >= 4.5, (letters, behind)
        for drawn in ("dot", "lead", "cell", "warm"):
            assert contrast(colours[drawn], colours["page"]) >= 3.0, drawn
