"""`RepeatedSamplingTask` inside the real harness, with a scripted model."""

from __future__ import annotations

import copy
import json
import logging

import datasets
import pytest
from _support import toy
from _support.errors import refused
from _support.toy import QUESTIONS, SCRIPT, ScriptedLM, all_rows, toy_config
from lm_eval.loggers import EvaluationTracker
from lm_eval.utils import handle_non_serializable

import lm_eval_bayes
from lm_eval_bayes import (
    Outcomes,
    hbayes_at_n,
    maj_at_k_posterior,
    pass_at_k_posterior,
    pass_hat_k_posterior,
)
from lm_eval_bayes.analysis.leaderboard import leaderboard
from lm_eval_bayes.analysis.summary import summarise
from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.export.tables import table_text
from lm_eval_bayes.harness.grading.grade import process_results_math
from lm_eval_bayes.harness.models.interface import Completion
from lm_eval_bayes.harness.task import questions
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes

pytestmark = pytest.mark.filterwarnings("default")


def evaluate(task, script=SCRIPT, **kwargs):
    return toy.evaluate(ScriptedLM(script), task, **kwargs)


@pytest.fixture(scope="module")
def results():
    return evaluate(RepeatedSamplingTask(config=toy_config(metadata={"bayes_interval": "exact"})))


@pytest.fixture
def row(results):
    """The rows by their names, without the name of the filter."""
    return {key.split(",")[0]: value for key, value in all_rows(results).items()}


OUTCOMES = Outcomes.from_counts([[1, 3], [3, 1], [4, 0]])
#: The rows of a member of the pass family: the estimate, and the posterior with its interval.
ENDS = ("", "_stderr", "_low", "_high")
FORMS = (("", ""), ("h", ""), ("h", "_low"), ("h", "_high"))


def test_the_rows_stand_in_their_order(results):
    rows = [
        key.removesuffix(",none")
        for key in all_rows(results)
        if key.endswith(",none") and not key.endswith("_stderr,none")
    ]
    posteriors = ("hbayes@4", "hbayes@4_population", "bayes@4")
    family = ("pass@1", "pass@2", "pass@4", "pass^2", "pass^4")
    family += ("g-pass@2_0.5", "g-pass@4_0.5", "mg-pass@2", "mg-pass@4", "maj@4")
    assert rows == [
        *(f"{name}{end}" for name in posteriors for end in ("", "_low", "_high")),
        "avg@4",
        *(f"{h}{name}{end}" for name in family for h, end in FORMS),
    ]
    with_sd = [row for row in rows if f"{row}_stderr,none" in all_rows(results)]
    assert with_sd == [*posteriors, "avg@4", *(f"h{name}" for name in family)]
    # the harness's table sorts the keys of the results, and prints all of them
    printed = [key.split(",")[0] for key in sorted(results["results"]["toy"]) if "," in key]
    assert printed == [
        *(f"{name}{end}" for name in ("hbayes@4", "bayes@4") for end in ENDS),
        *("avg@4", "avg@4_stderr", "pass@4", "maj@4"),
    ]
    for name in printed:
        assert results["results"]["toy"][f"{name},none"] == all_rows(results)[f"{name},none"]
    assert json.loads(json.dumps(results["results"])) == results["results"]
    assert sorted(copy.deepcopy(results["results"]["toy"])) == sorted(results["results"]["toy"])


def test_the_posteriors_of_the_pass_family_are_those_of_the_api(row):
    for name, posterior in (
        ("hpass@2", pass_at_k_posterior(OUTCOMES, 2)),
        ("hpass^4", pass_hat_k_posterior(OUTCOMES, 4)),
    ):
        interval = posterior.interval()
        assert row[name] == pytest.approx(posterior.mu, abs=1e-4)
        assert row[f"{name}_stderr"] == pytest.approx(posterior.sigma, rel=1e-4)
        assert row[f"{name}_low"] == pytest.approx(interval.low, abs=2e-3)
        assert row[f"{name}_high"] == pytest.approx(interval.high, abs=2e-3)


def test_the_numbers_are_those_of_the_formulas(row):
    # counts of right answers: 3, 1, 0 of N = 4; by hand from [Hariri 2026, Alg. 1]
    m = [4 / 6, 2 / 6, 1 / 6]
    assert row["bayes@4"] == pytest.approx(sum(m) / 3, abs=1e-12)
    sigma = sum(p * (1 - p) / 7 for p in m) ** 0.5 / 3
    assert row["bayes@4_stderr"] == pytest.approx(sigma, abs=1e-12)
    assert row["avg@4"] == pytest.approx((3 + 1 + 0) / 12, abs=1e-12)
    assert row["avg@4_stderr"] == pytest.approx(6 / 4 * sigma, abs=1e-12)
    assert row["pass@2"] == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-12)
    assert row["pass^2"] == pytest.approx((0.5 + 0 + 0) / 3, abs=1e-12)
    assert row["pass@4"] == pytest.approx(2 / 3, abs=1e-12)
    # all four vote: question 1 elects "2"; question 2 elects "5"; question 3 elects "7"
    assert row["maj@4"] == pytest.approx(1 / 3, abs=1e-12)
    assert row["bayes@4_low"] < row["bayes@4"] < row["bayes@4_high"]
    assert not {"grading_error_share", "empty_share", "cut_off_share"} & row.keys()


def test_the_learned_prior_s_rows_are_the_api_s(row):
    for stem, scope in (("hbayes@4", "benchmark"), ("hbayes@4_population", "population")):
        posterior = hbayes_at_n(OUTCOMES, scope)
        interval = posterior.interval(0.95, "exact")
        own = [posterior.mu, posterior.sigma, interval.low, interval.high]
        assert [row[stem + end] for end in ("", "_stderr", "_low", "_high")] == pytest.approx(own)


def test_the_samples_hold_every_trial(results):
    sample = results["samples"]["toy"][0]
    assert sample["resps"] == [["2", "2", "3", "2"]]
    assert sample["outcomes"] == [1, 1, 0, 1]
    assert sample["answers"] == ["2", "2", "3", "2"]
    assert sample["lengths"] == [1, 1, 1, 1]
    # the metric's values, and no row of the run
    assert sample["metrics"] == ["exact_match"]
    assert sample["exact_match"] == [1.0, 1.0, 0.0, 1.0]
    assert not [name for name in sample if "@" in name]
    dumped = json.loads(json.dumps(sample, default=handle_non_serializable))
    assert dumped["outcomes"] == [1, 1, 0, 1]


def test_one_trial_gives_the_posterior_of_one_trial():
    task = RepeatedSamplingTask(config=toy_config(repeats=1))
    row = all_rows(evaluate(task))
    assert row["bayes@1,none"] == pytest.approx((2 / 3 + 1 / 3 + 1 / 3) / 3)
    assert "pass@1,none" in row
    assert "maj@1,none" in row


def test_metadata_sets_n_k_and_the_interval():
    metadata = {"bayes_n": 3, "bayes_k": [3], "bayes_level": 0.5}
    row = all_rows(evaluate(RepeatedSamplingTask(config=toy_config(metadata=metadata))))
    z = 0.674489750196
    low = row["bayes@3,none"] - z * row["bayes@3_stderr,none"]
    assert row["bayes@3_low,none"] == pytest.approx(low, abs=1e-9)
    assert "pass@3,none" in row
    assert "pass@1,none" not in row


def test_predict_only_logs_responses_and_grades_nothing():
    results = evaluate(RepeatedSamplingTask(config=toy_config()), predict_only=True)
    sample = results["samples"]["toy"][0]
    assert sample["resps"] == [["2", "2", "3", "2"]]
    assert sample["lengths"] == [1, 1, 1, 1]
    assert "outcomes" not in sample


def test_take_first_is_dropped_and_each_filter_gets_its_rows():
    take_first = {"function": "take_first"}
    digit = {"function": "regex", "regex_pattern": r"(\d)", "fallback": "none"}
    filters = [
        {"name": "strict", "filter": [take_first]},
        {"name": "digit", "filter": [digit, take_first]},
    ]
    script = {**SCRIPT, "1 + 1 =": ["2", "it is 2", "2!", "2"]}
    results = evaluate(RepeatedSamplingTask(config=toy_config(filter_list=filters)), script)
    row = all_rows(results)
    assert row["avg@4,strict"] == pytest.approx((2 + 1 + 0) / 12)
    assert row["avg@4,digit"] == pytest.approx((4 + 1 + 0) / 12)


def test_a_voting_pipeline_is_left_out_and_a_lone_one_refused(caplog):
    vote = {"name": "maj", "filter": [{"function": "majority_vote"}, {"function": "take_first"}]}
    with caplog.at_level(logging.WARNING):
        task = RepeatedSamplingTask(
            config=toy_config(filter_list=[vote, {"name": "none", "filter": []}])
        )
    assert "`maj` votes" in caplog.text
    assert [f.name for f in task._filters] == ["none"]
    with refused("filter_list", "unsupported", "majority_vote", error=TaskConfigError):
        RepeatedSamplingTask(config=toy_config(filter_list=[vote]))


def test_a_filter_that_fails_on_one_question_loses_nothing_of_the_others(caplog):
    def picky(resps, docs):
        if any("x" in r for r in resps):
            raise ValueError("no x, please")
        return resps

    filters = [{"name": "f", "filter": [{"function": "custom", "filter_fn": picky}]}]
    row = all_rows(evaluate(RepeatedSamplingTask(config=toy_config(filter_list=filters))))
    assert row["avg@4,f"] == pytest.approx((3 + 0 + 0) / 12)
    assert row["grading_error_share,f"] == 4 / 12
    assert "no x, please" in caplog.text


def test_a_failing_grader_counts_as_wrong_is_logged_once_and_counted(caplog):
    def process_results(doc, results):
        if results[0] == "x":
            raise RuntimeError("cannot read x")
        return {"exact_match": float(results[0] == doc["answer"])}

    task = RepeatedSamplingTask(config=toy_config(process_results=process_results, repeats=48))
    results = evaluate(task)
    assert all_rows(results)["grading_error_share,none"] == 12 / 144
    assert results["results"]["toy"]["grading_error_share,none"] == 12 / 144
    assert all_rows(results)["avg@48,none"] == pytest.approx(4 / 12)
    assert "question 1, trial 3" in caplog.text
    assert caplog.text.count("cannot read x") == 1
    notes = results["samples"]["toy"][1]["grading_error_notes"]
    assert notes == dict.fromkeys(range(3, 48, 4), "RuntimeError: cannot read x")


def test_list_targets_are_graded_by_the_task_itself():
    config = toy_config(
        doc_to_target=lambda doc: [doc["answer"], "x"],
    )
    row = all_rows(evaluate(RepeatedSamplingTask(config=config)))
    assert row["avg@4,none"] == pytest.approx((3 + 2 + 0) / 12)


def test_categories_with_weights_of_the_users_own():
    def process_results(doc, results):
        return {"level": {"2": 2, "4": 2, "x": 1}.get(results[0], 0)}

    config = toy_config(
        process_results=process_results,
        metric_list=[{"metric": "level", "aggregation": "mean", "higher_is_better": True}],
        metadata={"bayes_weights": [0, 0.25, 1]},
    )
    row = all_rows(evaluate(RepeatedSamplingTask(config=config)))
    # counts (category 0, 1, 2): (1,0,3), (2,1,1), (4,0,0); uniform prior, T = 7
    expected = sum(0.25 * (b + 1) / 7 + (c + 1) / 7 for b, c in [(0, 3), (1, 1), (0, 0)]) / 3
    assert row["bayes@4,none"] == pytest.approx(expected, abs=1e-12)
    assert "pass@1,none" not in row


@pytest.mark.parametrize(("category", "warned"), [(1, True), (2, False)])
def test_a_right_answer_below_the_top_category_is_pointed_at(caplog, category, warned):
    level = [{"metric": "level", "aggregation": "mean", "higher_is_better": True}]
    weights = {"bayes_weights": [0, 0.5, 1]}
    graded_by(lambda doc, results: {"level": category}, metric_list=level, metadata=weights)
    warning = "the first question's own answer is graded 1 of the categories 0..2"
    assert (warning in caplog.text) == warned


def test_thinking_is_cut_before_the_filters_but_kept_in_the_log():
    config = toy_config(metadata={"think_end_token": "<end>"})
    script = {**SCRIPT, "1 + 1 =": ["3<end>2", "2<end>3", "2", "2"]}
    results = evaluate(RepeatedSamplingTask(config=config), script)
    sample = results["samples"]["toy"][0]
    assert sample["outcomes"] == [1, 0, 1, 1]
    assert sample["resps"][0][0] == "3<end>2"


def test_identical_answers_are_warned_about(caplog):
    script = {q["question"]: ["2"] for q in QUESTIONS}
    with caplog.at_level(logging.WARNING):
        evaluate(RepeatedSamplingTask(config=toy_config()), script)
    assert "all 4 answers to every question are identical" in caplog.text


def test_requests_carry_the_settings_and_n():
    model = ScriptedLM(SCRIPT)
    settings = {"do_sample": True, "temperature": 0.5, "until": [], "max_gen_toks": 8}
    task = RepeatedSamplingTask(config=toy_config(generation_kwargs=dict(settings)))
    toy.evaluate(model, task, gen_kwargs="max_new_tokens=5")
    assert len(model.requests) == 12
    assert model.requests[0].args[1] == {**settings, "max_gen_toks": 5, "top_p": 1.0}


def test_requests_are_built_anew_for_each_run(tmp_path, monkeypatch):
    monkeypatch.setattr("lm_eval.caching.cache.PATH", str(tmp_path))
    for prompt in ("{{question}}", "Solve {{question}}"):
        task = RepeatedSamplingTask(config=toy_config(doc_to_text=prompt))
        script = {prompt.replace("{{question}}", question): ["2"] for question in SCRIPT}
        model = ScriptedLM(script)
        toy.evaluate(model, task, cache_requests=True)
        assert {request.args[0] for request in model.requests} == set(script)


def graded_by(function, **changes):
    """The toy task with a grader of its own and no filter."""
    return RepeatedSamplingTask(config=toy_config(process_results=function, **changes))


def ends_in_the_gold(doc, results):
    return {"exact_match": int(results[0].endswith(doc["answer"]))}


def test_maj_needs_an_extracted_answer(caplog):
    # 2 of 8 are right and six agree on -1 in different words: a vote elects -1, so that maj@8 is 0
    openings = ("hence", "thus", "so", "then", "clearly", "and")
    script = {q: [a] * 2 + [f"{word} -1" for word in openings] for q, a in
              ((q["question"], q["answer"]) for q in QUESTIONS)}  # fmt: skip
    results = evaluate(graded_by(ends_in_the_gold, repeats=8), script)
    row = all_rows(results)
    assert row["avg@8,none"] == 2 / 8
    assert not [name for name in row if name.startswith("maj@")]
    assert "answers" not in results["samples"]["toy"][0]
    assert caplog.text.count("no row maj@8: ") == 1
    last_word = [{"function": "regex", "regex_pattern": r"(\S+)$"}, {"function": "take_first"}]
    task = graded_by(ends_in_the_gold, repeats=8, filter_list=[{"name": "f", "filter": last_word}])
    assert all_rows(evaluate(task, script))["maj@8,f"] == 0.0


def test_right_answers_are_one_candidate_however_they_are_written():
    # three of five right in three forms against two that agree, two against two, two against three
    right = (r"\boxed{%d}", r"\boxed{%d.0}", r"\boxed{\frac{%d}{1}}")
    wrong = ((8, 8), (8, 8, 9), (8, 8, 8))
    script = {
        question["question"]: [form % int(question["answer"]) for form in right][: 5 - len(others)]
        + [rf"\boxed{{{other}}}" for other in others]
        for question, others in zip(QUESTIONS, wrong, strict=True)
    }
    metadata = {"bayes_interval": "exact", "bayes_k": 1}
    task = graded_by(process_results_math, repeats=5, metadata={**metadata, "bayes_maj_k": 5})
    row = all_rows(evaluate(task, script))
    assert row["maj@5,none"] == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-12)
    answers = [["right"] * (5 - len(others)) + list(map(str, others)) for others in wrong]
    marks = [[answer == "right" for answer in row] for row in answers]
    posterior = maj_at_k_posterior(answers, marks, 5)
    interval = posterior.interval()
    rows = [row[f"hmaj@5{end},none"] for end in ("", "_stderr", "_low", "_high")]
    assert rows == pytest.approx(
        [posterior.mu, posterior.sigma, interval.low, interval.high], abs=1e-12
    )


def test_a_response_without_a_match_abstains():
    digit = [{"function": "regex", "regex_pattern": r"(\d)", "fallback": "nothing"}]
    filters = [{"name": "f", "filter": digit}]
    task = RepeatedSamplingTask(config=toy_config(filter_list=filters))
    script = {**SCRIPT, "1 + 1 =": ["2", "well", "hm", "no"]}
    results = evaluate(task, script)
    assert results["samples"]["toy"][0]["answers"] == ["2", None, None, None]
    assert all_rows(results)["maj@4,f"] == 1 / 3


def test_empty_responses_are_counted(caplog):
    script = {**SCRIPT, "1 + 1 =": ["2", "", "2", " \n"], "3 + 3 =": ["", "6", "6", "6"]}
    results = evaluate(RepeatedSamplingTask(config=toy_config()), script)
    assert all_rows(results)["avg@4,none"] == (2 + 1 + 3) / 12
    assert caplog.text.count("toy: 3 of 12 responses are empty") == 1


def test_one_program_at_a_time_is_given_to_a_metric_of_programs(caplog):
    def pass_at_k(references, predictions, k):
        assert k == [1]
        (programs,) = predictions
        return {"pass@1": float(programs == [f"return {references[0]}"])}

    def programs(resps, docs):
        return [[f"return {text}" for text in texts] for texts in resps]

    config = toy_config(
        unsafe_code=True,
        filter_list=[{"name": "f", "filter": [{"function": "custom", "filter_fn": programs}]}],
        metric_list=[
            {"metric": pass_at_k, "aggregation": "mean", "higher_is_better": True, "k": [1, 2]}
        ],
    )
    row = evaluate(RepeatedSamplingTask(config=config), confirm_run_unsafe_code=True)
    assert all_rows(row)["pass@2,f"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert "no row maj@4: " in caplog.text


def test_the_results_identify_the_package_and_the_questions(results):
    recorded = results["configs"]["toy"]["metadata"]["lm_eval_bayes"]
    assert recorded["version"] == lm_eval_bayes.__version__
    assert (recorded["questions"], recorded["revision"]) == (3, None)

    other = [{**question, "answer": "7"} for question in QUESTIONS]
    dataset = {"test": datasets.Dataset.from_list(other)}
    for changes in ({"repeats": 2}, {"custom_dataset": lambda **_: dataset}):
        identity = questions.identity(RepeatedSamplingTask(config=toy_config(**changes)))
        is_same = identity["questions_hash"] == recorded["questions_hash"]
        assert is_same is ("repeats" in changes)


def share_of_gold(doc, results):
    """A score: the share of words that are the right answer."""
    words = results[0].split()
    return {"f1": sum(word == doc["answer"] for word in words) / len(words)}


F1 = [{"metric": "f1", "aggregation": "mean", "higher_is_better": True}]
SCORED = {
    "1 + 1 =": ["2", "2 x", "x", "2"],
    "2 + 2 =": ["4 x x x", "x", "4 x", "x x"],
    "3 + 3 =": ["6", "6", "6", "6 x"],
}
SHARES = [[1, 0.5, 0, 1], [0.25, 0, 0.5, 0], [1, 1, 1, 0.5]]


BOUNDED = {"bayes_bounds": [0, 1], "bayes_interval": "exact"}


def test_scores_have_the_posterior_of_their_mean():
    task = graded_by(share_of_gold, metric_list=F1, metadata=BOUNDED)
    results = evaluate(task, SCORED)
    row = {k.split(",")[0]: v for k, v in all_rows(results).items()}
    assert [sample["scores"] for sample in results["samples"]["toy"]] == SHARES
    assert row["avg@4"] == pytest.approx(sum(map(sum, SHARES)) / 12)
    posterior = hbayes_at_n(ScoreOutcomes.from_scores(SHARES))
    assert row["hbayes@4"] == pytest.approx(posterior.mu, abs=1e-12)
    assert row["hbayes@4_high"] == pytest.approx(posterior.interval().high, abs=1e-9)
    assert not [name for name in row if "pass" in name or "maj" in name or name[0] == "b"]
    assert "outcomes" not in results["samples"]["toy"][0]


def test_a_score_beyond_a_bound_by_rounding_is_the_bound():
    def rounded(doc, results):
        share = share_of_gold(doc, results)["f1"]
        return {"f1": {0: -1e-17, 1: 1.0000000000000002}.get(share, share)}

    task = graded_by(rounded, metric_list=F1, metadata={"bayes_bounds": [0, 1]})
    results = evaluate(task, SCORED)
    assert [sample["scores"] for sample in results["samples"]["toy"]] == SHARES


def test_a_threshold_says_which_scores_pass():
    metadata = {"bayes_bounds": [0, 1], "bayes_threshold": 0.5}
    task = graded_by(share_of_gold, metric_list=F1, metadata=metadata)
    results = evaluate(task, SCORED)
    row = {k.split(",")[0]: v for k, v in all_rows(results).items()}
    assert row["pass@1"] == pytest.approx((3 + 1 + 4) / 12)  # counts 3, 1, 4 of 4
    assert row["pass@2"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert row["avg@4"] == pytest.approx((2.5 + 0.75 + 3.5) / 12)
    assert results["higher_is_better"]["toy"]["grading_error_share"] is False


def test_values_between_0_and_1_are_scores_without_a_setting():
    results = evaluate(graded_by(share_of_gold, metric_list=F1), SCORED)
    row = all_rows(results)
    posterior = hbayes_at_n(ScoreOutcomes.from_scores(SHARES))
    assert row["hbayes@4,none"] == pytest.approx(posterior.mu, abs=1e-12)
    assert [sample["f1"] for sample in results["samples"]["toy"]] == SHARES
    rows = [key.split(",")[0] for key in results["results"]["toy"] if "," in key]
    assert rows == [*(f"hbayes@4{end}" for end in ENDS), "avg@4", "avg@4_stderr"]
    recorded = results["configs"]["toy"]["metadata"]["lm_eval_bayes"]
    assert recorded["bounds"] == {"f1": [0, 1]}


def judged(doc, results):
    """A judge's score from 1 to 10."""
    return {"f1": 1 + 9 * share_of_gold(doc, results)["f1"]}


def test_other_values_need_bounds_before_sampling_where_the_first_answer_shows_it():
    for metadata in ({}, {"bayes_bounds": [0, 9]}):
        with refused("metric_list", "range", 10.0, error=TaskConfigError):
            graded_by(judged, metric_list=F1, metadata=metadata)
    unchecked = graded_by(judged, metric_list=F1, metadata={"bayes_check": False})
    with refused(None, "failed", error=TaskConfigError) as caught:
        evaluate(unchecked, SCORED)
    results = caught.value.results
    assert not [key for key in results["results"]["toy"] if "@" in key]
    # the responses are there, with what the metric gave them
    samples = results["samples"]["toy"]
    assert [sample["resps"] for sample in samples] == [[texts] for texts in SCORED.values()]
    assert [sample["f1"] for sample in samples] == [[1 + 9 * s for s in row] for row in SHARES]
    assert not any("outcomes" in sample or "scores" in sample for sample in samples)


def edit_rate(doc, results):
    """An error rate, 0 for the right answer: the words that differ, for 5.5 words."""
    return {"f1": sum(word != doc["answer"] for word in results[0].split()) / 5.5}


def penalised(doc, results):
    """A right answer has one point, a wrong one costs one."""
    return {"f1": 1 if results[0] == doc["answer"] else -1}


@pytest.mark.parametrize(("grader", "value"), [(edit_rate, 10 / 5.5), (penalised, -1)])
def test_a_wrong_response_shows_bounds_that_the_right_one_does_not(grader, value):
    with refused("metric_list", "range", value, error=TaskConfigError):
        graded_by(grader, metric_list=F1)


def test_a_run_without_numbers_is_saved_before_the_error_and_can_be_counted(tmp_path, capsys):
    tracker = EvaluationTracker(output_path=str(tmp_path))
    task = graded_by(judged, metric_list=F1, metadata={"bayes_check": False})
    with refused(None, "failed", error=TaskConfigError) as caught:
        evaluate(task, SCORED, evaluation_tracker=tracker)
    assert f"lm-eval-bayes summary {tmp_path} --bounds" in str(caught.value)
    with refused("RUN", "range"):
        read_runs(tmp_path)
    (run,) = read_runs(tmp_path, bounds=(1.0, 10.0)).runs
    assert [list(row) for row in run.outcomes.scores] == [[1 + 9 * s for s in r] for r in SHARES]
    assert run.outcomes.bounds == (1, 10)


def test_a_cluster_needs_categories():
    docs = [{**doc, "family": name} for doc, name in zip(QUESTIONS, "aab", strict=True)]
    data = {"test": datasets.Dataset.from_list(docs)}
    changes = {"custom_dataset": lambda **_: data, "metadata": {"cluster": "family"}}
    with refused(None, "failed", error=TaskConfigError):
        evaluate(graded_by(share_of_gold, metric_list=F1, **changes), SCORED)


class CutOff(ScriptedLM):
    """Says of every response with an x that it ended at the limit of tokens."""

    def generate_until(self, requests, disable_tqdm=False):
        texts = super().generate_until(requests)
        return [
            Completion(t, {"finish_reason": "length" if "x" in t.split() else "stop"})
            for t in texts
        ]


@pytest.mark.parametrize(
    ("marker", "signals", "right"),
    [
        (None, {"think_closed": False}, 0),
        (None, {"think_closed": True}, 1),
        (None, {}, 1),  # nothing says that it thinks
        ("[/T]", {}, 0),
    ],
)
def test_thinking_that_was_cut_off_has_no_answer(marker, signals, right):
    class Thinking(CutOff):
        def generate_until(self, requests, disable_tqdm=False):
            texts = super().generate_until(requests)
            return [Completion(text, {**text.signals, **signals}) for text in texts]

    boxed = {prompt: [r"so x = \boxed{2}", r"\boxed{2}"] for prompt in SCRIPT}
    config = toy_config(
        process_results=process_results_math,
        metadata={"think_end_token": marker} if marker else {},
        repeats=2,
    )
    results = toy.evaluate(Thinking(boxed), RepeatedSamplingTask(config=config))
    sample = results["samples"]["toy"][0]
    assert sample["outcomes"] == [right, 1]
    assert sample["answers"][0] == ("2" if right else None)
    assert sample["resps"] == [boxed["1 + 1 ="]]
    assert results["results"]["toy"]["cut_off_share,none"] == 0.5


def test_shares_of_cut_off_and_empty_responses_are_rows_where_there_are_any(tmp_path):
    script = {**SCRIPT, "3 + 3 =": ["", " ", "6", "6 x"]}
    results = toy.evaluate(CutOff(script), RepeatedSamplingTask(config=toy_config()))
    shown = {k.split(",")[0]: v for k, v in results["results"]["toy"].items() if "share" in k}
    assert shown == {"cut_off_share": 2 / 12, "empty_share": 2 / 12}
    sample = results["samples"]["toy"][2]
    assert sample["signals"]["finish_reason"] == ["stop", "stop", "stop", "length"]
    # and so in what commands read of the saved run
    tracker = EvaluationTracker(output_path=str(tmp_path))
    tracker.save_results_aggregated({k: v for k, v in results.items() if k != "samples"}, {})
    tracker.save_results_samples("toy", results["samples"]["toy"])
    summary = summarise(*read_runs(tmp_path).runs)
    assert summary.to_dict()["shares"] == shown
    assert [note for note in summary.notes if note.startswith("16.67% of the responses")] == [
        "16.67% of the responses were cut off at the limit of tokens",
        "16.67% of the responses are empty",
    ]
    table = table_text([leaderboard(read_runs(tmp_path).runs)], ".md")
    assert " | Cut off | Empty | " in table
    assert " | 0.167 | 0.167 | " in table


@pytest.mark.parametrize(("limit", "clusters"), [(None, ["a", "a", "b"]), (2, None)])
def test_the_rows_of_the_population_take_questions_of_one_cluster_as_dependent(limit, clusters):
    """Questions of a single cluster, which `--limit` may leave, say nothing about others."""
    docs = [{**doc, "family": name} for doc, name in zip(QUESTIONS, "aab", strict=True)]
    data = {"test": datasets.Dataset.from_list(docs)}
    config = toy_config(custom_dataset=lambda **_: data, metadata={"cluster": "family"})
    row = all_rows(evaluate(RepeatedSamplingTask(config=config), limit=limit))
    counts = [[1, 3], [3, 1], [4, 0]][:limit]
    posterior = hbayes_at_n(Outcomes.from_counts(counts, clusters=clusters), "population")
    assert row["hbayes@4_population,none"] == pytest.approx(posterior.mu, abs=1e-12)
    assert row["hbayes@4_population_stderr,none"] == pytest.approx(posterior.sigma, abs=1e-12)
    alone = hbayes_at_n(Outcomes.from_counts(counts), "population")
    assert (row["hbayes@4_population_stderr,none"] == pytest.approx(alone.sigma)) is (limit == 2)
