"""`lm-eval-bayes rubric`: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import pytest
from _support.command_line import called
from _support.harness_command import lm_eval_command
from _support.paths import REPOSITORY
from _support.saved_runs import STAMP, TASK, VERIFIER, question, write_run

import lm_eval_bayes as leb
from lm_eval_bayes.rubric.schemata import SCHEMATA
from lm_eval_bayes.rubric.thresholds import Thresholds

#: A name that would colour a terminal, be taken as markup or mathematics, and break a line.
HOSTILE = "mod$x_1$el \x1b[31m[bold]x[/bold]\n\u202e:smiley:"
#: Needs no model that records anything of prompts.
WITHOUT_PROMPTS = [name for name in SCHEMATA if "verifier" not in name and name[:3] != "ood"]


@pytest.fixture
def lmeb():
    """Run `rubric`; return (exit code, standard output, standard error)."""
    return partial(called, "rubric")


def trial(right, boxed=True, tokens=16, bpt=1.0, cut=False, verdict=None, **more):
    return {
        "text": "It is \\boxed{4}." if boxed else "It is 4.",
        "outcome": int(right),
        "completion_tokens": tokens,
        "finish_reason": "length" if cut else "stop",
        "completion_bpt": bpt,
        **({} if verdict is None else {"verdict": verdict}),
        **more,
    }


#: Per question (right and boxed, right, wrong and boxed, wrong, cut off).
GOOD = [(4, 2, 1, 0, 1), (6, 0, 1, 1, 0)]
POOR = [(1, 1, 1, 4, 1), (0, 1, 2, 3, 2)]


def questions(counts, verdict=None, **more):
    result = []
    for number, (best, plain, wrong, bare, cut) in enumerate(counts):
        kinds = [(True, True)] * best + [(True, False)] * plain
        kinds += [(False, True)] * wrong + [(False, False)] * bare
        trials = [
            trial(right, boxed, tokens=8 + 4 * i, bpt=0.5 + i / 8, verdict=verdict, **more)
            for i, (right, boxed) in enumerate(kinds)
        ]
        trials += [trial(False, False, 64, 4.0, cut=True, verdict=verdict, **more)] * cut
        result.append(question(trials, number))
    return result


@pytest.fixture
def good(tmp_path):
    return write_run(tmp_path / "good", "good", questions(GOOD))


@pytest.fixture
def poor(tmp_path):
    return write_run(tmp_path / "poor", "poor", questions(POOR))


def learned(counts, weights):
    """Posterior mean and sd of the kernel."""
    posterior = leb.hbayes_at_n(leb.Outcomes.from_counts(counts, weights=weights))
    return posterior.mu, posterior.sigma


def beside_notes(error):
    """Leave out the notes that two questions are few for a learned prior."""
    lines = error.splitlines(keepends=True)
    return "".join(line for line in lines if "2 questions depends on the prior" not in line)


def of(printed, model, schema, task=0):
    """Return one score out of the JSON."""
    rows = {row["name"]: row for row in json.loads(printed)["tasks"][task]["schemata"]}
    return next(score for score in rows[schema]["scores"] if score["model"] == model)


# -- numbers -------------------------------------------------------------------------------------


def test_the_table(lmeb, good, poor):
    code, printed, error = lmeb(good, poor, width="80")
    assert (code, beside_notes(error)) == (0, "")
    lines = printed.splitlines()
    assert lines[0] == f"{TASK}: 2 questions, hbayes@N for these questions"
    over = f"pooled over good (samples_{TASK}_{STAMP}.jsonl), poor (samples_{TASK}_{STAMP}.jsonl)"
    assert lines[1].startswith("thresholds blake2b-64:")
    assert lines[1].endswith(f", not frozen, {over}")
    assert lines[2] == "invalid: generation that did not end at a stop; no verifier"
    assert lines[3] == "mean ± sd (rank)"
    assert lines[4].split() == ["schema", "good", "poor"]
    assert [line.split()[0] for line in lines[5:14]] == WITHOUT_PROMPTS
    cells = []
    for counts in (GOOD, POOR):
        by_category = [(cut, bare, wrong, plain, best) for best, plain, wrong, bare, cut in counts]
        mu, sigma = learned(by_category, (0, 0, 1 / 3, 2 / 3, 1))
        cells.append(f"{mu:.3f} ± {sigma:.3f}")
    (row,) = (line for line in lines if line.strip().startswith("format_aware"))
    assert " ".join(row.split()) == f"format_aware {cells[0]} (1) {cells[1]} (2)"
    want = "left out: ood_robustness; missing: prompt_bpt from a recording model with log-pr"
    assert lines[14].startswith(want)
    assert lines[15] == (
        "left out: verifier_only; missing: verifier_a, verifier_b, verifier_c "
        "from lm-eval-bayes verify"
    )
    assert len(lines) == 17


def test_a_wide_page_has_the_intervals_too(lmeb, good, poor):
    some = (good, poor, "--schema", "format_aware", "--level", ".8")
    _, printed, _ = lmeb(*some)
    lines = printed.splitlines()
    assert lines[3] == "mean ± sd (rank), 80% beta interval"
    result = [of(lmeb(*some, "--json")[1], model, "format_aware") for model in ("good", "poor")]
    cells = [
        f"{item['mu']:.3f} ± {item['sigma']:.3f} ({rank}), "
        f"{item['interval']['low']:.3f} to {item['interval']['high']:.3f}"
        for rank, item in enumerate(result, 1)
    ]
    assert " ".join(lines[5].split()) == f"format_aware {' '.join(cells)}"


def test_json_and_other_weights(lmeb, good, poor):
    weights = ("--weights", "format_aware=0, 0, 1/4,.5,1", "--json")
    code, printed, error = lmeb(good, poor, *weights)
    assert (code, error) == (0, "")
    result = of(printed, "good", "format_aware")
    by_category = [(cut, bare, wrong, plain, best) for best, plain, wrong, bare, cut in GOOD]
    mu, sigma = learned(by_category, (0, 0, 0.25, 0.5, 1))
    assert (result["mu"], result["sigma"]) == pytest.approx((mu, sigma), rel=1e-12)
    assert list(result["categories"].values()) == [1, 1, 2, 2, 10, 0]
    assert (result["missing"], result["trials"], result["rank"]) == (0, 16, 1)
    complete = json.loads(printed)
    assert complete["thresholds_file"] is None
    (task,) = complete["tasks"]
    assert result["thresholds"] == task["thresholds"]["hash"]
    assert len(task["thresholds"]["pooled_over"]) == 2
    assert [left["schema"] for left in task["left_out"]] == [
        "ood_robustness",
        "verifier_only",
        "verifier_probe",
    ]


def test_questions_like_these_and_a_seed(lmeb, good, poor):
    arguments = (good, poor, "--schema", "format_aware", "--json")
    like = ("--scope", "population", "--seed", "7")
    wide, other, local = (
        lmeb(*arguments, *more)[1] for more in (like, (*like[:3], "8"), ("--seed", "7"))
    )
    for model, counts in (("good", GOOD), ("poor", POOR)):
        by_category = [(cut, bare, wrong, plain, best) for best, plain, wrong, bare, cut in counts]
        outcomes = leb.Outcomes.from_counts(by_category, weights=[0, 0, 1 / 3, 2 / 3, 1])
        for scope, printed in (("population", wide), ("benchmark", local)):
            kernel = leb.hbayes_at_n(outcomes, scope, seed=7)
            result = of(printed, model, "format_aware")
            assert (result["mu"], result["sigma"]) == pytest.approx((kernel.mu, kernel.sigma))
        assert of(other, model, "format_aware")["mu"] != of(wide, model, "format_aware")["mu"]
    assert json.loads(wide)["tasks"][0]["scope"] == "population"
    assert (
        lmeb(*arguments[:-1], *like)[1].splitlines()[0].endswith("for the population of questions")
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", "-1"), "`--seed` must"),
        (("--level", "1"), "`--level` must"),
    ],
)
def test_options_that_make_no_posterior(lmeb, good, poor, options, message):
    code, printed, error = lmeb(good, poor, *options)
    assert (code, printed) == (2, "")
    assert message in error


def test_a_narrow_page_gets_lists_with_intervals(lmeb, good, poor):
    arguments = (good, poor, "--schema", "exact_match", "--level", ".8")
    code, printed, _ = lmeb(*arguments, "--wide", width="40")
    assert code == 0
    lines = [line.split() for line in printed.splitlines()[3:7]]
    assert lines[0] == ["exact_match"]
    assert lines[1] == ["rank", "model", "mean", "±", "sd", "80%", "beta", "interval", "missing"]
    assert (lines[2][:2], lines[3][:2]) == (["1", "good"], ["2", "poor"])
    assert lines[2][-3:] == ["0", "of", "16"]
    low, mean, high = float(lines[2][5]), float(lines[2][2]), float(lines[2][7])
    assert low < mean < high
    assert "mean ± sd (rank)" in lmeb(*arguments)[1]


def test_one_model_gets_a_table_without_ranks(lmeb, good):
    code, printed, _ = lmeb(good, "--schema", "exact_match")
    assert code == 0
    lines = [line.split() for line in printed.splitlines()[3:]]
    counts = [(cut, bare + wrong, best + plain) for best, plain, wrong, bare, cut in GOOD]
    mu, sigma = learned(counts, (0, 0, 1))
    assert lines[0] == ["good"]
    assert lines[1] == ["schema", "mean", "±", "sd", "95%", "beta", "interval", "missing"]
    assert lines[2][:4] == ["exact_match", f"{mu:.3f}", "±", f"{sigma:.3f}"]
    assert lines[2][-3:] == ["0", "of", "16"]
    assert len(lines) == 3


def test_missing_trials_are_shown_and_warned_of(lmeb, tmp_path, good):
    result = questions(POOR)
    for item in result[0]["trials"][:3]:
        item["finish_reason"] = None
    folder = write_run(tmp_path / "gaps", "gaps", result)
    code, printed, error = lmeb(good, folder, "--schema", "exact_match")
    assert code == 0
    # without an end of generation a trial may have been cut off, whatever its grade
    assert ", missing 3 of 16" in printed
    assert beside_notes(error) == (
        "warning: exact_match: trials that lack a signal or threshold are in no category: "
        "gaps missing 3 of 16\n"
    )


def test_several_tasks_make_several_tables(lmeb, tmp_path, good, poor):
    other = write_run(tmp_path / "other", "good", questions(POOR), task="other_task")
    code, printed, _ = lmeb(good, other, poor, "--schema", "exact_match")
    assert code == 0
    assert printed.count("exact_match") == 2
    assert f"{TASK}: 2 questions" in printed
    assert "other_task: 2 questions" in printed
    code, printed, _ = lmeb(good, other, poor, "--task", TASK, "--json")
    assert code == 2, "there is no such task in one of the runs"
    code, printed, _ = lmeb(good, poor, "--task", TASK, "--json")
    assert [task["task"] for task in json.loads(printed)["tasks"]] == [TASK]


def test_names_are_shown_as_text(lmeb, tmp_path, good):
    hostile = write_run(tmp_path / "x", HOSTILE, questions(POOR))
    for width in ("400", "30"):
        code, printed, error = lmeb(good, hostile, width=width)
        assert (code, beside_notes(error)) == (0, "")
        assert "\x1b" not in printed
        assert "\u202e" not in printed
        assert "mod$x_1$el \\x1b[31m[bold]x[/bold]\\n\\u202e:smiley:" in printed
    code, printed, _ = lmeb(good, hostile, "--json")
    assert printed.isascii()
    assert of(printed, HOSTILE, "exact_match")["rank"] == 2


# -- thresholds ----------------------------------------------------------------------------------


def test_freezing_and_using_thresholds(lmeb, tmp_path, good, poor):
    file = tmp_path / "frozen.json"
    freeze = ("--json", "--freeze", file)
    code, first, error = lmeb(good, *freeze)
    frozen = Thresholds.from_json(file.read_text())
    assert code == 0
    message = f"thresholds of 1 task written to {file}; their common hash is {frozen.hash}\n"
    assert error == message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["frozen.json", "good", "poor"]
    # the same again is no change
    before = file.stat().st_mtime_ns
    assert lmeb(good, *freeze)[0] == 0
    assert file.stat().st_mtime_ns == before
    # a model joins: with the frozen thresholds the first one's scores stay as they are
    code, second, _ = lmeb(good, poor, "--json", "--thresholds", file)
    assert code == 0
    for schema in WITHOUT_PROMPTS:
        assert of(first, "good", schema)["mu"] == of(second, "good", schema)["mu"]
    assert json.loads(second)["thresholds_file"] == "frozen.json"
    pooled_over = json.loads(second)["tasks"][0]["thresholds"]["pooled_over"]
    assert pooled_over == [f"good (samples_{TASK}_{STAMP}.jsonl)"]
    printed = lmeb(good, poor, "--thresholds", file)[1]
    assert f"frozen on {frozen.date} in frozen.json, pooled over good (" in printed
    third = lmeb(good, poor, "--json")[1]
    moved = [s for s in WITHOUT_PROMPTS if of(first, "good", s)["mu"] != of(third, "good", s)["mu"]]
    assert "efficiency_adjusted" in moved


def test_a_file_of_other_content_is_not_written_over(lmeb, tmp_path, good, poor):
    file = tmp_path / "frozen.json"
    assert lmeb(good, "--freeze", file)[0] == 0
    content = file.read_text()
    code, printed, error = lmeb(good, poor, "--freeze", file)
    assert (code, printed) == (2, "")
    assert "it holds blake2b-64:" in error
    assert file.read_text() == content
    file.write_text("my notes")
    assert "it holds something else" in lmeb(good, "--freeze", file)[2]
    assert file.read_text() == "my notes"
    assert "`--freeze` must lie in a folder" in lmeb(good, "--freeze", file / "frozen.json")[2]
    assert lmeb(good, "--freeze", tmp_path / "new" / "frozen.json")[0] == 0
    assert (tmp_path / "new" / "frozen.json").read_text() == content


# -- verdicts ------------------------------------------------------------------------------------


def test_verdicts_of_some_models_only(lmeb, tmp_path, good):
    folder = write_run(tmp_path / "j", "judged", questions(POOR, verdict=(0.2, 0.2, 0.6)))
    code, printed, error = lmeb(good, folder)
    assert (code, printed) == (2, "")
    assert "judged (samples_" in error
    assert "--ignore-verdicts" in error
    code, printed, _ = lmeb(good, folder, "--ignore-verdicts")
    assert code == 0
    assert "; no verifier" in printed
    # alone, every trial is invalid by its C
    code, printed, _ = lmeb(folder, "--json")
    assert of(printed, "judged", "exact_match")["categories"]["invalid"] == 16
    assert json.loads(printed)["tasks"][0]["verifier"] == VERIFIER
    assert "or C >= .50 by judge-3B" in lmeb(folder)[1]


# -- the picture ---------------------------------------------------------------------------------


def test_the_picture(lmeb, tmp_path, good):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    hostile = write_run(tmp_path / "x", HOSTILE, questions(POOR))
    drawn = []
    for name in ("a.svg", "b.svg"):
        path = tmp_path / name
        code, _, error = lmeb(good, hostile, "--plot", path)
        assert (code, beside_notes(error)) == (0, f"figure written to {path}\n")
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1]
    assert drawn[0].startswith(b"<?xml")


def test_a_picture_that_cannot_be_drawn_is_refused_at_once(lmeb, tmp_path, monkeypatch, good):
    other = write_run(tmp_path / "other", "good", questions(POOR), task="other_task")
    code, printed, error = lmeb(good, other, "--plot", tmp_path / "a.svg")
    assert (code, printed) == (2, "")
    assert f"choose one with --task ({TASK}, other_task)" in error
    assert "end with .svg or .png" in lmeb(tmp_path / "absent", "--plot", "a.gif")[2]
    monkeypatch.setattr("lm_eval_bayes.report.plots.drawing.find_spec", lambda _: None)
    code, _, error = lmeb(good, "--plot", tmp_path / "a.svg")
    assert code == 2
    assert "pip install 'matplotlib>=3.8'" in error
    assert not (tmp_path / "a.svg").exists()


# -- wrong arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--schema", "mine"), "`schema` must be one of exact_match, "),
        (("--schema", "ood_robustness"), "there is no prompt_bpt from a recording model"),
        (("--weights", "ood_robustness=0,0,0,1,1"), "there is no prompt_bpt from a recording mo"),
        (("--weights", "exact_match"), "name the schema, as in exact_match=0,0,1"),
        (("--weights", "mine=0,1"), "`schema` must be one of exact_match, "),
        (("--weights", "exact_match=0,1"), "have 3 entries for exact_match"),
        (("--weights", "exact_match=0,1/0,1"), "`--weights` must be numbers or fractions"),
        (("--weights", "exact_match=0,,1"), "`--weights` must be numbers or fractions"),
        (("--weights", "exact_match=0,nan,1"), "be finite numbers in rubric exact_match"),
        (("--weights", "exact_match=0,inf,1"), "be finite numbers in rubric exact_match"),
        (("--weights", "exact_match=0,0,1", "--weights", "exact_match=0,0,2"), "once per schema"),
        (
            ("--weights", "exact_match=0,0,1", "--schema", "format_aware"),
            "be of a schema that --schema names (format_aware)",
        ),
        (("--level", "1"), "be a number strictly between 0 and 1"),
        (("--thresholds", "absent.json"), "absent.json: No such file or directory"),
        (
            ("--thresholds", "a.json", "--freeze", "b.json"),
            "`--freeze` must be left out with --thresholds",
        ),
    ],
)
def test_wrong_arguments_end_in_one_sentence(lmeb, good, poor, arguments, message):
    code, printed, error = lmeb(good, poor, *arguments)
    assert (code, printed) == (2, "")
    assert message in error
    assert "Traceback" not in error


def test_runs_that_are_none_or_lack_all_signals(lmeb, tmp_path, good):
    code, _, error = lmeb(tmp_path / "absent")
    assert code == 2
    assert "`RUN` must be a run, and this path does not exist" in error
    plain = [question([{"text": "\\boxed{4}", "outcome": 1}], number) for number in (0, 1)]
    folder = write_run(tmp_path / "plain", "plain", plain)
    code, printed, error = lmeb(folder)
    assert (code, printed) == (2, "")
    assert f"`RUN` must have the signals of a schema in every run of {TASK}" in error
    code, _, error = lmeb(good, folder, "--schema", "exact_match")
    assert code == 2
    assert "there is no repeated_pattern from a recording model" in error
    assert "in plain (samples_" in error


def test_models_of_different_questions(lmeb, tmp_path, good):
    others = write_run(tmp_path / "o", "others", questions(POOR)[:1])
    code, printed, error = lmeb(good, others)
    assert (code, printed) == (2, "")
    assert "question 1 of good (samples_" in error
    assert "is none of those of others (samples_" in error
    assert lmeb(others)[0] == 0


def test_help_has_two_examples_and_loads_nothing_heavy(lmeb):
    code, printed, _ = lmeb("--help", width="100")
    assert code == 0
    examples = printed.partition("Examples:")[2].splitlines()
    assert [line.split()[:2] for line in examples].count(["lm-eval-bayes", "rubric"]) == 2
    code = (
        "import sys, lm_eval_bayes.cli.commands.rubric"
        "; heavy = ('lm_eval', 'numpy', 'matplotlib', 'rich')"
        "; print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.stdout.strip() in ("[]", "['numpy']"), done.stderr


# -- a real run ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")
def test_a_real_run_of_the_harness(lmeb, tmp_path):
    """The coin ends every response with a stop, so that exact_match is the plain score."""
    model_args = f"backend=biased_coin,store={tmp_path / 's.sqlite'},beta=2:3,boxed=0.7"
    words = ("--model", "trials", "--model_args", model_args, "--tasks", "demo_arithmetic_bayes")
    lm_eval_command(*words, "--limit", 10, "--log_samples", "--output_path", tmp_path / "out")
    code, printed, error = lmeb(tmp_path / "out", "--json")
    assert code == 0
    assert error.startswith("note: ")
    assert "10 of the task's" in error
    assert len(error.splitlines()) == 1
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    right = sum(sum(row["outcomes"]) for row in rows)
    boxed = sum(
        "\\boxed{" in text and grade == 1
        for row in rows
        for text, grade in zip(row["resps"][0], row["outcomes"], strict=True)
    )
    (model,) = {run["model"] for run in json.loads(printed)["tasks"][0]["runs"]}
    result = of(printed, model, "strict_compliance")
    assert list(result["categories"].values()) == [0, 80 - boxed, boxed, 0]
    result = of(printed, model, "exact_match")
    assert list(result["categories"].values()) == [0, 80 - right, right, 0]
    counts = [(0, 8 - sum(row["outcomes"]), sum(row["outcomes"])) for row in rows]
    mu, sigma = learned(counts, (0, 0, 1))
    assert (result["mu"], result["sigma"]) == pytest.approx((mu, sigma), rel=1e-12)


OWN = {
    "name": "terse",
    "categories": [
        {"name": "wrong", "when": "wrong", "weight": 0.0},
        {"name": "long", "when": "correct and completion_tokens >= 16", "weight": 0.5},
        {"name": "short", "when": "correct and completion_tokens < 16", "weight": 1.0},
    ],
    "why": "mine",
}


def with_own(tmp_path, name, counts, own=OWN):
    bayes = {"n": 8, "weights": [0.0, 1.0], "rubrics": {"own": [own]}}
    config = {"metadata": {"version": 1.0, "bayes": bayes}}
    return write_run(tmp_path / name, name, questions(counts), config=config)


def test_a_rubric_that_the_task_had_of_its_own_is_shown_and_can_be_named(lmeb, tmp_path):
    runs = [with_own(tmp_path, "good", GOOD), with_own(tmp_path, "poor", POOR)]
    _, output, error = lmeb(*runs)
    assert any(line.split()[:1] == ["terse"] for line in output.splitlines()), output + error
    code, output, _ = lmeb(runs[0], "--schema", "terse", "--weights", "terse=0,1,1", "--json")
    assert code == 0
    (row,) = json.loads(output)["tasks"][0]["schemata"]
    # the first two trials of each question have 8 and 12 tokens, and are right
    assert row["scores"][0]["categories"] == {"wrong": 4, "long": 8, "short": 4, "missing": 0}
    _, output, _ = lmeb(runs[0], "--schema", "terse", "--weights", "terse=0,1,.5")
    assert "given weights: terse=0,1,0.5" in output


def test_own_rubrics_of_one_name_must_be_the_same(lmeb, tmp_path):
    other = {
        **OWN,
        "categories": [*OWN["categories"][:2], {**OWN["categories"][2], "when": "correct"}],
    }
    runs = [with_own(tmp_path, "good", GOOD), with_own(tmp_path, "poor", POOR, other)]
    code, _, error = lmeb(*runs)
    assert code == 2
    assert "have the same rules for their own rubric terse" in error


def test_weights_that_tell_nothing_apart_are_refused(lmeb, good):
    code, _, error = lmeb(good, "--weights", "exact_match=1,1,1")
    assert code == 2
    assert "`--weights` must differ between categories" in error


def test_what_is_no_regular_file_is_refused(lmeb, good, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for option in ("--freeze", "--thresholds"):
        code, printed, error = lmeb(good, option, pipe)
        assert (code, printed) == (2, "")
        assert f"`{option}` must be a regular file" in error


def test_a_picture_does_not_replace_thresholds(lmeb, good, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    both = tmp_path / "both.svg"
    code, _, error = lmeb(good, "--freeze", both, "--plot", both)
    assert code == 2
    assert "`--plot` must be another file than --freeze" in error
    both.write_text("{}")
    assert lmeb(good, "--plot", both)[0] == 2
    assert both.read_text() == "{}"
