"""Variants of a prompt take turns over the trials; settings are labelled, seeded and counted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from _support import toy
from _support.errors import refused
from _support.harness_command import lm_eval_command
from _support.stopping_runs import started

from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.models.api_seeds import trial_seed
from lm_eval_bayes.harness.models.trials import TrialsLM
from lm_eval_bayes.harness.rubrics.rubric_task import RubricTask
from lm_eval_bayes.harness.task.prompts import variants_of
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.stats import score_over_settings
from lm_eval_bayes.store.samples_export import export_samples
from lm_eval_bayes.store.trial_store import TrialStore

VARIANTS = [
    {"name": "ask", "doc_to_text": "{{question}} ?"},
    {"name": "own", "system_instruction": "Add: "},
    {"name": "both", "system_instruction": "Sum: ", "doc_to_text": "{{question}} !"},
]
NAMES = [variant["name"] for variant in VARIANTS]


def prompt_of(name, question):
    """Return the prompt of a variant by hand."""
    return {"ask": f"{question} ?", "own": f"Add: {question}", "both": f"Sum: {question} !"}[name]


class EchoLM(toy.ScriptedLM):
    """Answers right where the prompt has a system prompt, and says which time of it this is."""

    def generate_until(self, requests, disable_tqdm=False):
        self.script = {r.args[0]: [f"{r.args[0]}#{i}" for i in range(99)] for r in requests}
        return super().generate_until(requests)


class ChatLM(EchoLM):
    """Has a chat template, which joins the messages."""

    tokenizer_name = "chat"

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return "|".join(message["content"] for message in chat_history)

    def chat_template(self, chat_template=False):
        return "template"


def grade(doc, results):
    """Count a response right by its prompt, and by its number in one of them."""
    text = results[0]
    return {"exact_match": text.startswith("Sum") or (text.startswith("Add") and text[-1] == "0")}


def asked(n=7, variants=VARIANTS, **changes):
    metadata = {"bayes_prompts": variants, "bayes_check": False}
    config = {"repeats": n, "metadata": metadata, "process_results": grade, **changes}
    return RepeatedSamplingTask(config=toy.toy_config(**config))


@pytest.mark.parametrize("n", [7, 2])  # with fewer trials than variants a question lacks some
def test_trials_take_the_variants_in_turn_and_settings_have_rows(n):
    results = toy.evaluate(EchoLM({}), asked(n), log_samples=True)
    counts = np.zeros((3, 3, 2), dtype=int)
    for row, sample in enumerate(sorted(results["samples"]["toy"], key=lambda s: s["doc_id"])):
        question, times = sample["doc"]["question"], dict.fromkeys(NAMES, 0)
        expected = []
        for i in range(n):
            name = NAMES[(i + row) % 3]
            expected.append(f"{prompt_of(name, question)}#{times[name]}")
            is_right = name == "both" or (name == "own" and times[name] == 0)
            counts[NAMES.index(name), row, int(is_right)] += 1
            times[name] += 1
        assert sample["resps"] == [expected]
        assert sample["setting"] == [NAMES[(i + row) % 3] for i in range(n)]
        assert sample["arguments"][0][0] == prompt_of(NAMES[row], question)
    assert counts.sum(axis=(0, 2)).tolist() == [n] * 3
    order = np.argsort(NAMES)
    by_hand = score_over_settings(counts[order], labels=sorted(NAMES))
    block, like = results["posterior"]["toy"]["none"], by_hand.like["benchmark"]
    rows = [results["results"]["toy"][f"hbayes@{n}_settings_{end},none"] for end in ("low", "high")]
    assert rows == [like.low, like.high]
    assert (block["settings"]["n"], block["settings"]["labels"]) == (3, sorted(NAMES))
    assert block["settings"]["scores"] == pytest.approx(by_hand.scores)
    assert block["settings"]["like"]["population"]["high"] == by_hand.like["population"].high
    protocol = results["configs"]["toy"]["metadata"]["lm_eval_bayes"]["protocol"]
    assert protocol["name"] == "custom"


def test_one_variant_with_the_prompt_of_the_task_changes_no_number():
    config = toy.toy_config()
    one = [{"name": "own", "doc_to_text": config["doc_to_text"]}]
    tasks = [config, toy.toy_config(metadata={"bayes_prompts": one})]
    plain, varied = (
        toy.evaluate(toy.ScriptedLM(toy.SCRIPT), RepeatedSamplingTask(config=c), log_samples=True)
        for c in tasks
    )
    assert varied["results"]["toy"] == plain["results"]["toy"]
    assert varied["posterior"] == plain["posterior"]
    labelled = [{**sample, "setting": ["own"] * 4} for sample in plain["samples"]["toy"]]
    assert [dict(sample) for sample in varied["samples"]["toy"]] == labelled


def test_examples_of_the_prompt_are_the_same_questions_in_every_variant():
    variants = [{"name": f"{i}", "doc_to_text": "Q " + "{{question}}" + " " * i} for i in range(2)]
    model = EchoLM({})
    fewshot = {"num_fewshot": 1, "fewshot_config": {"split": "test", "sampler": "default"}}
    task = asked(2, variants, **fewshot)
    toy.evaluate(model, task, apply_chat_template=False)
    sent = {}
    for request in model.requests:
        sent.setdefault(request.doc_id, set()).add(" ".join(request.args[0].split()))
    assert all(len(prompts) == 1 for prompts in sent.values())
    assert all(prompts.pop().count("Q ") == 2 for prompts in sent.values())


def test_the_chat_template_has_the_system_prompt_of_the_variant():
    model = ChatLM({})
    options = {"apply_chat_template": True, "system_instruction": "Mine", "predict_only": True}
    results = toy.evaluate(model, asked(3), log_samples=True, limit=1, **options)
    (sample,) = results["samples"]["toy"]
    sent = ["Mine|1 + 1 = ?#0", "Add: |1 + 1 =#0", "Sum: |1 + 1 = !#0"]
    assert (sample["resps"], sample["setting"]) == ([sent], NAMES)


def test_scores_have_no_rows_of_settings_which_is_said(caplog):
    task = asked(4, process_results=lambda doc, results: {"exact_match": 0.5})
    results = toy.evaluate(EchoLM({}), task)
    assert "settings" not in results["posterior"]["toy"]["none"]
    assert "no interval about settings like these" in caplog.text


def test_a_task_that_lists_the_metric_has_the_same_rows():
    metrics = [{"metric": "exact_match"}, {"metric": "bayes", "aggregation": "bayes"}]
    listed = [{"aggregation": "mean", "higher_is_better": True, **metric} for metric in metrics]
    config = {"repeats": 6, "metadata": {"bayes_prompts": VARIANTS}, "process_results": grade}
    tasks = [toy.plain_task(metric_list=listed, **config), asked(6)]
    rows = [toy.evaluate(EchoLM({}), task)["results"]["toy"] for task in tasks]
    names = [f"hbayes@6_settings_{end},none" for end in ("low", "high")]
    assert [rows[0][name] for name in names] == [rows[1][name] for name in names]


# -- with a store ---------------------------------------------------------------------------------

YAML = """
task: sums
class: !function lm_eval_bayes.tasks.RepeatedSamplingTask
dataset_path: json
dataset_kwargs: {{data_files: {data}}}
test_split: train
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: [], do_sample: true, temperature: 0.6, max_gen_toks: 9}}
filter_list: [{{name: box, filter: [{{function: regex, regex_pattern: 'boxed.([0-9]+)'}}]}}]
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
metadata:
  version: 1.0
  bayes_prompts:
    - {{name: short, doc_to_text: "{{{{question}}}}"}}
    - {{name: from file, file: long.jinja}}
"""


@pytest.fixture
def folder(tmp_path):
    rows = [{"question": f"{i} + {i}?", "answer": str(2 * i)} for i in range(10, 16)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    text = YAML.format(data=tmp_path / "sums.jsonl")
    (tmp_path / "sums.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "long.jinja").write_text("What is {{question}}", encoding="utf-8")
    return tmp_path


def sampled(folder, output, *arguments, n=5, model_args="", **metadata):
    metadata = {"bayes_n": n, "bayes_interval": "normal", "bayes_k": 1, **metadata}
    lm_eval_command(
        *("--model", "trials", "--tasks", "sums", "--include_path", folder, "--log_samples"),
        *("--model_args", f"backend=biased_coin,p=0.5,store={folder}/sums.sqlite{model_args}"),
        *("--metadata", json.dumps(metadata), "--output_path", folder / output, *arguments),
        folders=[folder],
    )
    (run,) = read_runs([folder / output]).runs
    return run


def stored(folder):
    with TrialStore.open(folder / "sums.sqlite", mode="read") as store:
        return store.info().trials


def as_read(run):
    """Return what a run counts: question by question outcomes, labels and seeds."""
    labels = [[run.settings[code] for code in codes] for codes in run.setting]
    return run.question_ids, [t.tolist() for t in run.trials], labels, run.seeds


def test_log_and_store_have_the_same_trials_and_a_run_goes_on(folder):
    run = sampled(folder, "a")
    assert (run.settings, run.n_trials, stored(folder)) == (("from file", "short"), 30, 30)
    names = ["short", "from file"]
    _, _, labels, seeds = as_read(run)
    assert labels == [[names[(i + row) % 2] for i in range(5)] for row in range(6)]
    question, prompts = run.questions[3], {"short": "", "from file": "What is "}
    by_hand = [
        trial_seed(1, i, prompts[name] + question, [name]) for i, name in enumerate(labels[3])
    ]
    assert list(seeds[3]) == by_hand
    (of_store,) = read_runs([folder / "sums.sqlite"]).runs
    assert as_read(of_store) == as_read(run)
    export_samples(folder / "sums.sqlite", folder / "exported")
    (exported,) = read_runs([folder / "exported"]).runs
    assert as_read(exported) == as_read(run)
    (both,) = read_runs([folder / "a", folder / "sums.sqlite"], dedupe=True).runs
    assert both.n_trials == 30
    longer = sampled(folder, "b", n=8)
    assert stored(folder) == 48
    assert [trials[:5].tolist() for trials in longer.trials] == [t.tolist() for t in run.trials]
    part = sampled(folder, "c", "--samples", '{"sums": [3, 4]}', n=8)
    assert stored(folder) == 48
    assert as_read(part)[1:] == tuple(of[3:5] for of in as_read(longer)[1:])
    later = sampled(folder, "d", n=3, model_args=",trials=5:8")
    assert stored(folder) == 48
    for of_later, of_longer in zip(as_read(later)[1:], as_read(longer)[1:], strict=True):
        assert list(map(list, of_later)) == [list(of_question[5:]) for of_question in of_longer]


def test_a_label_has_trials_of_its_own_in_the_store(folder):
    own = {"bayes_prompts": None}
    runs = [sampled(folder, "none", **own)]
    runs += [sampled(folder, day, bayes_setting=day, **own) for day in ("day1", "day2", "day1")]
    assert stored(folder) == 3 * 30
    unlabelled, day1, day2, again = (run.seeds for run in runs)
    question = runs[0].questions[0]
    assert unlabelled[0][2] == trial_seed(1, 2, question)
    assert day2[0][2] == trial_seed(1, 2, question, ["day2"])
    assert len({*unlabelled[0], *day1[0], *day2[0]}) == 15
    assert again == day1
    (store,) = read_runs([folder / "sums.sqlite"]).runs
    assert (store.settings, store.n_trials) == (("day1", "day2", "sums"), 90)
    (days,) = read_runs([folder / "day1", folder / "day2"], dedupe=True).runs
    assert days.settings == ("day1", "day2")
    both = list(zip(days.trials, days.setting, strict=True))
    right = [sum(trials[setting == code].sum() for trials, setting in both) for code in (0, 1)]
    assert right == [sum(map(np.sum, run.trials)) for run in runs[1:3]]


@pytest.mark.parametrize("kind", [RepeatedSamplingTask, RubricTask])
def test_the_log_has_the_labels_of_stored_trials(tmp_path, kind):
    coin = TrialsLM(backend="biased_coin", store=str(tmp_path / "coin.sqlite"), p=0.5)
    task = kind(config=toy.toy_config(metadata={"bayes_setting": "day1", "bayes_check": False}))
    samples = toy.evaluate(coin, task, log_samples=True)["samples"]["toy"]
    assert [sample["setting"] for sample in samples] == [["day1"] * 4] * 3


def test_a_start_of_the_engine_draws_anew_in_every_variant(folder):
    runs = [sampled(folder, start, bayes_setting=start) for start in ("start1", "start2")]
    assert stored(folder) == 60
    assert all(run.settings == ("from file", "short") for run in runs)
    assert {*runs[0].seeds[0]}.isdisjoint(runs[1].seeds[0])


def test_a_run_that_stops_counts_every_variant(tmp_path):
    variants = [{"name": name, "doc_to_text": name + " {{problem}}"} for name in ("a", "b", "c")]
    metadata = json.dumps({"bayes_interval": "normal", "bayes_k": 1, "bayes_prompts": variants})
    results, samples = started(tmp_path, "run", metadata=metadata, width=0.3, batch_trials=4)
    n = results["configs"]["demo_arithmetic_bayes"]["metadata"]["bayes_n"]
    for sample in samples:
        assert sample["setting"] == ["abc"[(i + sample["doc_id"]) % 3] for i in range(n)]
    (run,) = read_runs([tmp_path / "run"]).runs
    assert run.outcomes.counts[:, 1].tolist() == [sum(s["outcomes"]) for s in samples]


# -- errors ---------------------------------------------------------------------------------------

ONE = {"name": "a", "doc_to_text": "x"}


@pytest.mark.parametrize(
    ("value", "rule", "got"),
    [
        ("mine", "format", "mine"),
        ([], "format", []),
        (["x"], "unknown-key", "x"),
        ([{**ONE, "nmae": "x"}], "unknown-key", "nmae"),
        ([{**ONE, "name": "a\nb"}], "format", "a\nb"),
        ([{**ONE, "doc_to_text": 3}], "format", {"doc_to_text": 3}),
        ([{"name": "a"}], "format", {}),
        ([ONE, ONE], "duplicate", "a"),
        ([{**ONE, "file": "x"}], "conflict", "x"),
        ([{"name": "a", "file": "no.jinja"}], "path", "no.jinja"),
    ],
)
def test_variants_that_break_a_rule_are_refused(value, rule, got):
    with refused("bayes_prompts", rule, got, error=TaskConfigError) as caught:
        variants_of({"bayes_prompts": value}, "sums")
    assert "task sums" in str(caught.value)


@pytest.mark.parametrize("label", ["", "a\nb", " a", 2, "a" * 61])
def test_a_label_is_one_short_line(label):
    with refused("bayes_setting", "format", label, error=InvalidInputError):
        Settings.from_metadata({"bayes_setting": label}, 4)


def test_a_template_that_cannot_be_rendered_is_refused_before_sampling():
    model, variant = EchoLM({}), {"name": "bad", "doc_to_text": "{{ question | nothing }}"}
    with refused("bayes_prompts", "failed", variant["doc_to_text"], error=TaskConfigError):
        toy.evaluate(model, asked(2, [variant]))
    assert not model.requests


def test_the_variants_of_the_contests_ask_for_a_box():
    variants = variants_of({"bayes_prompts": "contest"}, "aime25_bayes")
    assert len(variants) == 5
    assert all("\\boxed{" in v.doc_to_text and "{{ problem" in v.doc_to_text for v in variants)


def test_a_template_beside_the_one_of_promptsource_is_refused():
    task = asked()
    task.config.use_prompt = "promptsource:own"
    with refused("bayes_prompts", "conflict", "promptsource:own", error=TaskConfigError):
        toy.evaluate(EchoLM({}), task)
