"""Where labels of settings come from, and settings that repeat each other's trials."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from _support.command_line import answer
from _support.errors import refused
from _support.run_files import SENT, TASK, row, write_run
from _support.tables import write_rows

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

DAY = 86_400.0


def by_setting(run):
    """Return how many trials of a run are right and how many there are, by setting."""
    counts = {label: [0, 0] for label in run.settings}
    for of_question, outcomes in zip(run.setting, run.trials, strict=True):
        for code, outcome in zip(of_question.tolist(), outcomes.tolist(), strict=True):
            counts[run.settings[code]][0] += outcome
            counts[run.settings[code]][1] += 1
    return {label: tuple(of) for label, of in counts.items()}


def lines(name, seeds=None, outcomes=(1, 0), texts=None, prompt="", n_questions=4, sent=SENT):
    """Questions whose trials have texts of their own."""
    n = len(outcomes)
    more = {} if seeds is None else {"seed": list(seeds)}
    return [
        row(
            q,
            outcomes=list(outcomes),
            trial=[*range(n)],
            texts=[f"{texts or name} {q} {i}" for i in range(n)],
            prompt=f"{prompt}Q{q}",
            sent=sent,
            **more,
        )
        for q in range(n_questions)
    ]


@pytest.fixture
def days(tmp_path):
    """Four runs of one model with seeds of their own: 4, 8, 0 and 4 of 8 trials are right."""
    outcomes = {"day1": (1, 0), "day2": (1, 1), "day3": (0, 0), "day4": (0, 1)}
    for n, (name, of_day) in enumerate(outcomes.items()):
        asked = lines(name, (10 * n + 1, 10 * n + 2), of_day, prompt="!" if n > 1 else "")
        write_run(
            tmp_path / name,
            asked,
            date=1.7e9 + DAY * (n // 2),
            transformers_version=f"4.{n % 2}",
            system_instruction_sha=f"{n // 2}" * 64,
        )
    return tmp_path


RUNS = {"day1": (4, 8), "day2": (8, 8), "day3": (0, 8), "day4": (4, 8)}


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (None, RUNS),
        ("run", RUNS),
        ("prompt", {"day1": (12, 16), "day3": (4, 16)}),
        ("day", {"2023-11-14": (12, 16), "2023-11-15": (4, 16)}),
        ("engine", {"vllm transformers 4.0": (4, 16), "vllm transformers 4.1": (12, 16)}),
        ("none", {}),
        (
            "trial",
            {
                f"trial {i} of {day}": (right, 4)
                for day, of_day in (("day1", (4, 0)), ("day2", (4, 4)), ("day3", (0, 0)))
                for i, right in enumerate(of_day, 1)
            }
            | {"trial 1 of day4": (0, 4), "trial 2 of day4": (4, 4)},
        ),
    ],
)
def test_settings_are_what_the_user_takes_for_them(days, factor, expected):
    (run,) = read_runs(days, settings=factor).runs
    assert (run.n_trials, set(run.prompt_hashes)) == (32, {"several"})
    assert (by_setting(run) if run.settings else {}) == expected


def test_a_column_of_any_name_holds_settings(tmp_path):
    rows = [
        {"model": "m", "id": q, "trial": t, "correct": t, "provider": f"p{q % 2}", "setting": "x"}
        for q in range(4)
        for t in range(2)
    ]
    table = write_rows(tmp_path / "t.csv", rows)
    (run,) = read_runs(table, settings="provider").runs
    assert by_setting(run) == {"p0": (2, 4), "p1": (2, 4)}
    with refused("columns", "missing-column", "setting=host"):
        read_runs(table, settings="host")
    for factor in ("day", "engine", "prompt"):
        with refused("settings", "missing", factor):
            read_runs(table, settings=factor)
    write_run(tmp_path / "log", lines("a"))
    with refused("settings", "missing-column", "provider"):
        read_runs(tmp_path / "log", settings="provider")


def test_labels_of_the_user_join_runs_of_other_arguments(days):
    write_run(days / "day5", lines("five", sent={**SENT, "top_k": 5}), args={"dtype": "float16"})
    assert len(read_runs(days).models) == 2
    labels = {str(days / f"day{n}"): "warm" if n < 5 else "cold" for n in range(1, 6)}
    (run,) = read_runs(days, labels=labels).runs
    assert by_setting(run) == {"cold": (4, 8), "warm": (16, 32)}
    words = [word for path, label in labels.items() for word in ("--setting", f"{label}={path}")]
    (task,) = answer("summary", days, *words)["tasks"]
    assert task["settings"]["labels"] == ["cold", "warm"]
    # those without a label are of the model whose arguments they have
    labels = {path: label for path, label in labels.items() if path.endswith(("day1", "day5"))}
    (run,) = read_runs([days / "day5", *sorted(days.glob("day[1-4]"))], labels=labels).runs
    assert by_setting(run) == {"cold": (4, 8), "warm": (4, 8)} | {
        k: RUNS[k] for k in list(RUNS)[1:]
    }
    (run,) = read_runs(days, labels=labels, settings="day").runs
    assert set(run.settings) == {"warm", "cold", "2023-11-14", "2023-11-15"}
    with refused("setting", "path", "warm=elsewhere"):
        read_runs(days, labels={"elsewhere": "warm"})


def test_labels_of_the_user_go_before_a_column(tmp_path):
    rows = [{"model": "m", "id": q, "trial": 0, "correct": q, "setting": f"s{q}"} for q in (0, 1)]
    paths = [write_rows(tmp_path / f"{name}.csv", rows) for name in "ab"]
    (run,) = read_runs(paths, labels={str(paths[0]): "new"}).runs
    assert by_setting(run) == {"new": (1, 2), "s0": (0, 1), "s1": (1, 1)}


def test_sides_have_settings_of_one_name(tmp_path):
    for side in "AB":
        for n in range(4):
            asked = lines(f"{side}{n}", outcomes=(n % 2, 0, 1, int(side == "A")))
            write_run(tmp_path / side / f"day{n}" / "org__model", asked, model=f"org/{side}")
    (task,) = answer("compare", tmp_path / "A", tmp_path / "B")["tasks"]
    assert task["settings"]["paired"] == [f"day{n}" for n in range(4)]


def test_a_store_that_was_resumed_has_a_day_and_an_engine_for_each_trial(tmp_path):
    path, questions, right = tmp_path / "s.sqlite", [], Counter()
    with TrialStore.open(path) as store:
        model = store.describe_model({"pretrained": "m", "backend": "vllm"})
        sampling = store.describe_sampling({"temperature": 1})
        for q, prompt in enumerate(store.describe_prompts(["p?", "q?", "r?"])):
            key = TrialKey(model=model, prompt=prompt, sampling=sampling)
            for t in range(4):
                late = t == 3 or q == t == 2
                created, version = 1.7e9 + DAY * late, {"vllm": f"0.{int(late)}"}
                store.add([Trial(key, t, f"{q} {t}", t, created=created, versions=version)])
                right[late] += (q + t) % 2
            graded = tuple(GradedTrial(key, t, (q + t) % 2) for t in range(4))
            questions.append(GradedQuestion(q, f"h{q}", graded))
        store.add_outcomes([GradedTask("sums", "1.0", "none", 2, tuple(questions))])
    by_hand = [(right[False], 8), (right[True], 4)]
    for factor, labels in (
        ("day", ["2023-11-14", "2023-11-15"]),
        ("engine", ["vllm 0.0", "vllm 0.1"]),
    ):
        (run,) = read_runs(path, settings=factor).runs
        assert by_setting(run) == dict(zip(labels, by_hand, strict=True))
    assert read_runs(path).runs[0].settings == ()


@pytest.mark.parametrize("n_later", [3, 1])
def test_prompts_of_one_store_are_settings_where_all_questions_have_them(tmp_path, n_later):
    path, questions = tmp_path / "s.sqlite", []
    with TrialStore.open(path) as store:
        model, sampling = store.describe_model({"pretrained": "m"}), store.describe_sampling({})
        for q in range(3):
            prompts = store.describe_prompts([f"late {q}", f"early {q}"][q >= n_later :])[::-1]
            graded = []
            for p, prompt in enumerate(prompts):
                key, n = TrialKey(model=model, prompt=prompt, sampling=sampling), 4 - p
                store.add([Trial(key, t, f"{q}{p}{t}", t, created=1e9 + p) for t in range(n)])
                graded += [GradedTrial(key, t, int(t > p)) for t in range(n)]
            questions.append(GradedQuestion(q, f"h{q}", tuple(graded)))
        store.add_outcomes([GradedTask("sums", "1.0", "none", 2, tuple(questions))])
    for factor in (None, "prompt"):
        saved = read_runs(path, settings=factor)
        (run,) = saved.runs
        counts = by_setting(run) if run.settings else {}
        assert (counts, len(saved.warnings)) == (
            ({"prompt 1": (9, 12), "prompt 2": (3, 9)}, 0) if n_later == 3 else ({}, 1)
        )
        assert run.n_trials == (21 if n_later == 3 else 12)


def test_prompts_that_took_turns_in_time_are_not_taken_for_settings(tmp_path):
    path, questions = tmp_path / "s.sqlite", []
    with TrialStore.open(path) as store:
        model, sampling = store.describe_model({"pretrained": "m"}), store.describe_sampling({})
        for q in range(3):  # prompt a was asked of question 0, then b of all, then a of the others
            graded = []
            for p, prompt in enumerate(store.describe_prompts([f"a {q}", f"b {q}"])):
                key = TrialKey(model=model, prompt=prompt, sampling=sampling)
                made = 2.0 + 0.1 * q if p else 1.0 if q == 0 else 3.0
                store.add([Trial(key, t, f"{p}{t}", t, created=made) for t in range(4 - p)])
                graded += [GradedTrial(key, t, 1 - p) for t in range(4 - p)]
            questions.append(GradedQuestion(q, f"h{q}", tuple(graded)))
        store.add_outcomes([GradedTask("sums", "1.0", "none", 2, tuple(questions))])
    saved = read_runs(path)
    assert (saved.runs[0].n_trials, saved.runs[0].settings, len(saved.warnings)) == (12, (), 1)
    assert saved.runs[0].outcomes.counts[:, 1].tolist() == [4, 4, 4]


@pytest.mark.parametrize("factor", ["day", "engine"])
def test_labels_and_days_of_one_store_are_told_apart(tmp_path, factor):
    path, questions = tmp_path / "s.sqlite", []
    with TrialStore.open(path) as store:
        model = store.describe_model({"pretrained": "m", "backend": "vllm"})
        for q, prompt in enumerate(store.describe_prompts(["p", "q"])):
            graded = []
            for day, variant in ((d, v) for d in (1, 2) for v in "ab"):
                named = [f"day{day}", variant]
                sampling = store.describe_sampling({"temperature": 1, "setting": named})
                key = TrialKey(model=model, prompt=prompt, sampling=sampling)
                made = {"created": 1.7e9 + DAY * day, "versions": {"vllm": f"0.{day}"}}
                store.add(
                    [
                        Trial(key, t, f"{named} {t}", 100 * day + 2 * ord(variant) + t, **made)
                        for t in range(2)
                    ]
                )
                graded += [GradedTrial(key, t, day - 1) for t in range(2)]
            questions.append(GradedQuestion(q, f"h{q}", tuple(graded)))
        store.add_outcomes([GradedTask("sums", "1.0", "none", 2, tuple(questions))])
    (run,) = read_runs(path, settings=factor).runs
    assert list(by_setting(run).values()) == [(0, 8), (8, 8)]
    assert by_setting(read_runs(path).runs[0]) == dict.fromkeys("ab", (4, 8))


def test_a_log_and_a_copy_with_further_trials_are_one_setting(tmp_path):
    write_run(tmp_path / "a", lines("one", (1, 2)))
    write_run(tmp_path / "b", lines("one", (1, 2, 3), (1, 0, 1)))
    with refused("RUN", "duplicate"):
        read_runs([tmp_path / "a", tmp_path / "b"])
    (run,) = read_runs([tmp_path / "a", tmp_path / "b"], dedupe=True).runs
    assert (run.n_common, run.settings) == (3, ())


# -- settings that repeat each other ---------------------------------------------------------------


def test_seeds_that_settings_share_count_in_one_of_them_in_turn(tmp_path):
    paths = [tmp_path / f"day{n}" for n in range(4)]
    for n, path in enumerate(paths):
        right = [(n + t) % 2 for t in range(8)]
        write_run(path, lines(path.name, [*range(20, 28)], right, n_questions=6))
    with refused("RUN", "duplicate") as caught:
        read_runs(paths)
    assert all(f"--{name}" in str(caught.value) for name in ("dedupe", "same-seeds"))
    (first,) = read_runs(paths, dedupe=True).runs
    assert first.settings == ()
    (run,) = read_runs(paths, same_seeds=True).runs
    # every seed of every question once, and as many of each setting, of questions and of seeds
    for of_question, setting in zip(run.seeds, run.setting, strict=True):
        assert sorted(of_question) == [*range(20, 28)]
        assert Counter(setting.tolist()) == dict.fromkeys(range(4), 2)
    pairs = zip(np.concatenate(run.seeds), np.concatenate(run.setting), strict=True)
    assert set(Counter(pairs).values()) <= {1, 2}
    trials = zip(run.seeds, run.setting, run.trials, strict=True)
    for seeds, setting, outcomes in trials:
        expected = [(s + seed) % 2 for s, seed in zip(setting.tolist(), seeds, strict=True)]
        assert outcomes.tolist() == expected


@pytest.mark.parametrize("seeds", [None, (1, 2)])
def test_settings_whose_texts_agree_count_once(tmp_path, seeds):
    texts = {"day1": "x", "day2": "x", "day3": "y", "day4": "z"}
    for n, (name, text) in enumerate(texts.items()):
        own = None if seeds is None else [seed + 10 * n for seed in seeds]
        write_run(tmp_path / name, lines(name, own, texts=text, n_questions=12))
    labels = {str(tmp_path / name): name for name in texts}
    (run,) = read_runs(tmp_path, labels=labels).runs
    assert by_setting(run) == dict.fromkeys(("day1", "day3", "day4"), (12, 24))
    (note,) = [note for note in run.notes if "copies" in note]
    assert "among 4 settings" in note
    assert "day2 (of day1)" in note


def test_copies_are_found_where_a_label_has_further_runs(tmp_path):
    for name, texts in (("f1", "one"), ("f2", "two"), ("g", "one")):
        write_run(tmp_path / name, lines(name, texts=texts, n_questions=12))
    for label_of_f2 in "AB":
        labels = {"f1": "A", "f2": label_of_f2, "g": "B"}
        labels = {str(tmp_path / name): label for name, label in labels.items()}
        (run,) = read_runs(tmp_path, labels=labels).runs
        assert run.n_trials == 48


@pytest.mark.parametrize("factor", [None, "none", "trial"])
def test_a_resumed_run_counts_once_beside_another(tmp_path, factor):
    for name in "xy":
        write_run(tmp_path / name, lines(name, outcomes=(1, 0)), "2026-01-01T10-00-00.000000")
        write_run(tmp_path / name, lines(name, outcomes=(1, 0, 1)), "2026-01-02T10-00-00.000000")
    for paths in (["x", "y"], ["y", "x"]):
        (run,) = read_runs([tmp_path / name for name in paths], settings=factor).runs
        assert (run.n_trials, run.outcomes.counts.tolist()) == (24, [[2, 4]] * 4)


def test_draws_are_shared_also_under_other_numbers(tmp_path):
    for first in (0, 1):
        asked = lines("draw", range(first, first + 8), (1,) * 8, n_questions=3)
        for line in asked:
            texts = [f"draw {line['doc_id']} {first + i}" for i in range(8)]
            line |= {"resps": [texts], "filtered_resps": [texts]}
        write_run(tmp_path / f"s{first}", asked)
    labels = {str(tmp_path / f"s{first}"): f"s{first}" for first in (0, 1)}
    with refused("RUN", "duplicate"):
        read_runs(tmp_path, labels=labels)
    (run,) = read_runs(tmp_path, labels=labels, same_seeds=True).runs
    assert run.n_trials == 3 * 9


def test_a_label_that_is_the_name_of_another_run_does_not_swallow_it(tmp_path):
    for name, seed in (("a", 1), ("b", 3)):
        write_run(tmp_path / name, lines(name, (seed, seed + 1)))
    (run,) = read_runs(tmp_path, labels={str(tmp_path / "a"): "b"}).runs
    assert by_setting(run) == {"b": (4, 8), "b (run)": (4, 8)}


def test_a_name_of_a_prompt_has_one_text(tmp_path):
    labels = {}
    for name, seed in (("one", 1), ("two", 3)):
        bayes = {"weights": [0, 1], "prompts": [{"name": "a", "doc_to_text": name}]}
        configs = {TASK: {"task": TASK, "metadata": {"version": 1.0, "bayes": bayes}}}
        asked = [{**line, "setting": ["a", "a"]} for line in lines(name, (seed, seed + 1))]
        write_run(tmp_path / name, asked, configs=configs)
        labels[str(tmp_path / name)] = name
    with refused("RUN", "mismatch") as caught:
        read_runs(tmp_path)
    assert "another text of prompt a" in str(caught.value)
    (run,) = read_runs(tmp_path, labels=labels).runs
    assert by_setting(run) == {"one": (4, 8), "two": (4, 8)}


def test_few_texts_agree_by_chance(tmp_path):
    for name in ("day1", "day2"):
        asked = lines(name, n_questions=6, outcomes=(1,))
        write_run(tmp_path / name, [{**line, "resps": [["B"]]} for line in asked])
    labels = {str(tmp_path / name): name for name in ("day1", "day2")}
    (run,) = read_runs(tmp_path, labels=labels).runs
    assert by_setting(run) == {"day1": (6, 6), "day2": (6, 6)}


def test_scores_without_texts_are_copies_only_where_they_agree(tmp_path):
    for name, score in (("a", 0.25), ("b", 0.5), ("c", 0.5)):
        rows = [{"model": "m", "id": q, "trial": 0, "score": score} for q in "pq"]
        write_rows(tmp_path / f"{name}.csv", rows)
    (run,) = read_runs([tmp_path / "a.csv", tmp_path / "b.csv"]).runs
    assert (run.settings, run.n_trials) == (("a", "b"), 4)
    with refused("RUN", "duplicate"):
        read_runs([tmp_path / "b.csv", tmp_path / "c.csv"])


def test_passes_that_share_a_shift_differ_more_than_trials_explain(tmp_path):
    rng = np.random.default_rng(3)
    p = rng.beta(2.0, 3.0, (30, 1))
    # a uniform number of each trial, and one for all questions of a pass
    p_values = []
    for name, uniform in (("own", rng.random((30, 8))), ("shared", rng.random((1, 8)))):
        rows = [
            {"model": "m", "id": q, "trial": t, "correct": int(right)}
            for (q, t), right in np.ndenumerate(uniform < p)
        ]
        table = write_rows(tmp_path / f"{name}.csv", rows)
        (model,) = answer("noise", table, "--settings", "trial")["tasks"][0]["models"]
        p_values.append(model["settings"]["p_of_trials"])
    assert p_values[0] > 0.05
    assert p_values[1] < 1e-6
