"""The attempts at the questions of a page: from logs, stores and matrices, within the budget."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
from _support.command_line import called
from _support.paths import REPOSITORY
from _support.saved_runs import question, write_run
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_bayes import Outcomes
from lm_eval_bayes.analysis.report_data import report_data
from lm_eval_bayes.report.page import attempts as page_attempts
from lm_eval_bayes.report.page.attempts import Cut
from lm_eval_bayes.report.page.render import render
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

HOSTILE = "</script><script>window.injected=1</script><img src=x onerror=alert(1)>&\x00\u202e\ud800"


def content(page):
    """Return the attempts of a page, and the sentence about its texts."""
    (data,) = re.findall(r'id="attempts-data">(.*?)</script>', page, re.DOTALL)
    (note,) = re.findall(r"Select a question to read it and the attempts\.(.*?)</p>", page)
    return json.loads(data), note.strip()


def data_of(runs):
    saved = runs if isinstance(runs, SavedRuns) else SavedRuns(tuple(runs))
    return report_data(saved, IntervalSpec(method="normal"))


def page_of(runs, **more):
    return render(data_of(runs), **more)


def texts_of(data, panel="1"):
    """Return the texts of a panel by question, model and trial."""
    questions = data[panel]["questions"]
    return {n: [model.get("texts", []) for model in q["models"]] for n, q in questions.items()}


def logged(folder, model, texts, tokens=20):
    """Write a run whose trials have these texts; every second one is right."""
    questions = [
        question(
            [
                {"text": text, "outcome": i % 2, "completion_tokens": tokens + i}
                for i, text in enumerate(of_question)
            ],
            number,
        )
        for number, of_question in enumerate(texts)
    ]
    return write_run(folder, model, questions)


def test_attempts_are_those_of_the_run():
    run = TaskRun.from_trials(
        "A",
        "t",
        [[0, 1, 1], [1, 0]],
        ["p", "q"],
        answers=(("7", None, "8"), ("8", "8")),
        measured={"completion_tokens": (np.array([5.0, np.nan, 7.0]), np.array([1.0, 2.0]))},
    )
    other = TaskRun.from_trials("B", "t", [[1], [0]], ["q", "p"])
    data, note = content(page_of([run, other]))
    assert data["1"]["labels"] == ["wrong", "right"]
    first, second = data["1"]["questions"]["1"], data["1"]["questions"]["2"]
    by_answers = {"answers" in model: model for model in first["models"]}
    assert by_answers[True] == {
        "n": 3,
        "categories": "011",
        "answers": [0, -1, 1],
        "tokens": [5, None, 7],
    }
    # questions are matched by their ids
    assert by_answers[False] == {"n": 1, "categories": "0"}
    assert (first["answers"], second["answers"]) == (["7", "8"], ["8"])
    assert first["right"] is None
    assert note == "The runs were read from files without texts that this report reads."


def test_scores_categories_and_counts():
    scores = TaskRun.from_scores("A", "t", [[0.5, 0.123456], [1.0]], ["p", "q"])
    data, _ = content(page_of([scores]))
    models = [q["models"][0] for q in data["1"]["questions"].values()]
    assert sorted(m["scores"] for m in models) == [["0.5", "0.1235"], ["1"]]
    rubric = TaskRun.from_trials("A", "t", [[0, 2, 1]], ["p"], (0.0, 0.25, 1.0))
    data, _ = content(page_of([rubric]))
    assert data["1"]["labels"] == ["score 0", "score 0.25", "score 1"]
    assert data["1"]["questions"]["1"]["models"] == [{"n": 3, "categories": "021"}]
    counts = Outcomes.from_counts([[3, 5]], question_ids=("p",))
    data, _ = content(page_of([TaskRun("m", "t", ("counts.csv",), counts)]))
    assert data["1"]["questions"]["1"]["models"] == [{"n": 8}]


def test_texts_and_right_answers_are_those_of_the_samples(tmp_path):
    texts = [[f"{q}.{i} words" for i in range(4)] for q in range(3)]
    saved = read_runs([logged(tmp_path / "a", "lab/a", texts)])
    data, note = content(page_of(saved))
    for number, of_question in enumerate(texts, 1):
        held = data["1"]["questions"][str(number)]
        assert held["right"] == str(2 * (number - 1))
        assert held["models"][0]["texts"] == [[text] for text in of_question]
        assert held["models"][0]["categories"] == "0101"
        assert held["models"][0]["tokens"] == [20, 21, 22, 23]
    assert note == "The page holds at most 4.0 MB of the models&#39; texts: 12 of 12 texts."
    data, note = content(page_of(saved, text_bytes=0))
    assert all(model == [[]] for model in texts_of(data).values())
    assert data["1"]["questions"]["3"]["right"] == "4"
    assert note == "The texts of the attempts were left out."


def test_texts_of_a_store(tmp_path):
    path = tmp_path / "a.sqlite"
    with TrialStore.open(path) as store:
        key = TrialKey(
            model=store.describe_model({"pretrained": "some/model"}),
            prompt=store.describe_prompts(["What is 6 times 7?"])[0],
            sampling=store.describe_sampling({"temperature": 0.6}),
        )
        store.add([Trial(key, i, f"text {i}", seed=i) for i in range(5)])
        # a trial that was never graded is not counted
        graded = tuple(GradedTrial(key, i, i % 2, str(i)) for i in (4, 1, 3))
        store.add_outcomes([GradedTask("t", "1.0", "none", 2, (GradedQuestion(0, "aa", graded),))])
    data, note = content(page_of(read_runs([path])))
    (model,) = data["1"]["questions"]["1"]["models"]
    assert model["texts"] == [["text 1"], ["text 3"], ["text 4"]]
    assert (model["categories"], model["n"]) == ("110", 3)
    assert "3 of 3 texts" in note


def test_runs_without_texts_are_named(tmp_path):
    saved = read_runs([logged(tmp_path / "a", "lab/a", [["x", "y"]])])
    other = TaskRun.from_trials("lab/b", saved.runs[0].task, [[1]], saved.runs[0].question_ids)
    _, note = content(page_of([*saved.runs, other]))
    assert note.endswith("No texts that this report reads were logged of lab/b.")


def test_texts_take_at_most_the_budget(tmp_path):
    rng = np.random.default_rng(0)
    alphabet = list('ab <&>"\\\n\t数😀é\x00')
    texts = [
        ["".join(rng.choice(alphabet, size)) for size in rng.integers(0, 6000, 5)] for _ in range(4)
    ]
    report = data_of(read_runs([logged(tmp_path / "a", "lab/a", texts)]))
    n_bare = len(render(report, text_bytes=0).encode())
    for budget in (1499, 5_000, 60_000):
        page = render(report, text_bytes=budget)
        data, note = content(page)
        held = [text for models in texts_of(data).values() for text in models[0] if text]
        assert bool(held) == (budget >= 1500)
        # the keys of the lists and the sentence about the texts come on top
        assert len(page.encode()) - n_bare <= budget + 1200
        if held:
            assert f"{len(held)} of 20 texts" in note
    assert len(page.encode()) - n_bare > 0.6 * budget


@given(st.text("abc", max_size=60), st.integers(0, 70), st.integers(0, 70))
def test_a_cut_text_keeps_beginning_and_end(text, first, second):
    cut = Cut(text).shortened(first).shortened(second)
    n = min(first, second, len(text))
    assert len(cut.head) + len(cut.tail) == n
    assert cut.left_out == len(text) - n
    assert text.startswith(cut.head)
    assert text.endswith(cut.tail)
    assert abs(len(cut.head) - len(cut.tail)) <= 1 or not cut.left_out


def test_hostile_texts_answers_and_targets_stay_data(tmp_path):
    questions = [{**question([{"text": HOSTILE, "outcome": 1}]), "answer": HOSTILE}]
    saved = read_runs([write_run(tmp_path / "a", "lab/a", questions)])
    (run,) = saved.runs
    hostile = TaskRun.from_trials(
        "b", run.task, [[1, 0]], run.question_ids, answers=((HOSTILE, None),)
    )
    page = page_of([run, hostile])
    assert "<script>window" not in page
    assert "<img" not in page
    page.encode("utf-8")
    data, _ = content(page)
    held = data["1"]["questions"]["1"]
    shown = "</script><script>window.injected=1</script><img src=x onerror=alert(1)>&\\x00\\u202e"
    assert held["right"].startswith(shown)
    assert held["answers"][0].startswith(shown)
    assert [m["texts"][0][0] for m in held["models"] if "texts" in m] == [f"{shown}\ufffd"]


def test_attempts_beyond_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr(page_attempts, "_MAX_BYTES", 250)
    runs = [TaskRun.from_trials("A", "t", [[0, 1] * 50] * 2, ["p", "q"])]
    data, _ = content(page_of(runs))
    models = [q["models"][0] for q in data["1"]["questions"].values()]
    assert len(json.dumps(data, separators=(",", ":"))) <= 250
    assert [model["n"] for model in models] == [100, 100]
    lengths = {len(model["categories"]) for model in models}
    assert lengths == {max(lengths)}
    assert 10 < max(lengths) < 60


def test_the_command_takes_a_budget(tmp_path):
    folder = logged(tmp_path / "a", "lab/a", [["long words " * 500] * 6] * 3)
    page = tmp_path / "page.html"
    for options, n_texts in ((("--no-texts",), 0), (("--text-bytes", "9200"), 6)):
        code, _, error = called("report", folder, "-o", page, *options)
        assert (code, error) == (0, "")
        data, _ = content(page.read_text(encoding="utf-8"))
        texts = [text for models in texts_of(data).values() for text in models[0] if text]
        assert len(texts) == n_texts
    code, _, error = called("report", folder, "-o", page, "--text-bytes", "-1")
    assert code == 2
    assert "`--text-bytes` must be" in error


DATA = REPOSITORY / "tests/runs/readers/data"


def test_attempts_of_two_runs_are_counted(tmp_path):
    """Where two logs of a model both have a trial 1, the attempts are numbered as they come."""
    for name in ("a", "b"):
        shutil.copytree(DATA / "tau2", tmp_path / name)
        path = tmp_path / name / "strong.json"
        log = json.loads(path.read_text())
        log["timestamp"] = f"2026-01-0{len(name)}T00:00:0{ord(name) % 10}"
        path.write_text(json.dumps(log))
    saved = read_runs([tmp_path / name / "strong.json" for name in ("a", "b")])
    data, _ = content(page_of(saved, text_bytes=0))
    models = [model for q in data["1"]["questions"].values() for model in q["models"]]
    assert sorted(model["n"] for model in models) == [6, 8, 8, 8]
    assert all("numbers" not in model for model in models)
    assert [model["n_unscored"] for model in models if "n_unscored" in model] == [2]
