"""`RubricTask` inside the harness, with a model whose every signal is scripted."""

import json
import math

import numpy as np
import pytest
from _support import toy
from _support.errors import refused
from _support.paths import REPOSITORY
from _support.toy import ScriptedLM, all_rows, toy_config
from lm_eval.tasks import TaskManager

from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.models.interface import Completion
from lm_eval_bayes.harness.rubrics.custom_rubric import custom_rubrics
from lm_eval_bayes.harness.rubrics.rubric_task import RubricTask
from lm_eval_bayes.rubric.schemata import SCHEMATA
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import TaskThresholds, Thresholds
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.uniform_prior import bayes_at_n

pytestmark = pytest.mark.filterwarnings("default")

EXAMPLES = REPOSITORY / "examples" / "your_own_rubric"
#: Of every trial: text, tokens, finish_reason, completion_bpt; prompt_bpt goes with the question.
TRIALS = {
    "1 + 1 =": (1.0, [("2", 2, "stop", 0.5), ("2", 4, "stop", 1.5), ("3", 4, "stop", 0.7)]),
    "2 + 2 =": (2.0, [("5", 8, "length", 2.0), ("4", 6, "stop", 0.9), ("5", 2, "stop", 1.1)]),
    "3 + 3 =": (3.0, [("7", 3, "stop", 0.2), ("6", 5, "stop", 2.5), ("6", 7, "stop", None)]),
}


class SignallingLM(ScriptedLM):
    """Answers by script, and says what it measured, as the recording models do."""

    def __init__(self, cannot_record=()):
        super().__init__({})
        self.cannot_record = tuple(cannot_record)
        for prompt, (prompt_bpt, trials) in TRIALS.items():
            self.script[prompt] = []
            for text, tokens, reason, bpt in trials:
                signals = {"completion_tokens": tokens, "finish_reason": reason}
                signals |= {"completion_bpt": bpt, "prompt_bpt": prompt_bpt}
                recorded = {k: v for k, v in signals.items() if k not in self.cannot_record}
                self.script[prompt].append(Completion(text, recorded))


def task(**metadata):
    return RubricTask(config=toy_config(repeats=3, metadata={"version": 1.0, **metadata}))


def run(a_task, model=None, **kwargs):
    results = toy.evaluate(model or SignallingLM(), a_task, **kwargs)
    rows = {k.removesuffix(",none"): v for k, v in all_rows(results).items()}
    return rows, results


def by_hand():
    """Classify the nine trials for some schemata by the paper's words."""
    trials = [
        (question, text == answer, tokens / 8, reason != "stop", bpt)
        for question, (answer, (_, rows)) in enumerate(
            zip(("2", "4", "6"), TRIALS.values(), strict=True)
        )
        for text, tokens, reason, bpt in rows
    ]
    ratios = sorted(ratio for _, _, ratio, _, _ in trials)
    p33, p66 = np.percentile(ratios, 33), np.percentile(ratios, 66)
    bits = [bpt for *_, bpt in trials if bpt is not None]
    tau_high = np.percentile(bits, 40)
    counts = {
        "efficiency_adjusted": np.zeros((3, 7), int),
        "concision_high_conf": np.zeros((3, 6), int),
    }
    missing = 0
    for question, right, ratio, loop, bpt in trials:
        length = 0 if ratio <= p33 else 1 if ratio <= p66 else 2
        category = 0 if loop else 1 + length + 3 * right
        counts["efficiency_adjusted"][question, category] += 1
        if loop or not right:
            category = 0 if loop else 1
        elif length > 0:
            category = 4 - length
        elif bpt is None:
            missing += 1
            continue
        else:
            category = 5 if bpt <= tau_high else 4
        counts["concision_high_conf"][question, category] += 1
    return counts, missing


def test_rows_are_posteriors_of_categories_counted_by_hand():
    counts, missing = by_hand()
    rows, _ = run(task(rubric_schemata=list(counts), bayes_interval="exact", bayes_k=1))
    assert {name for name in rows if name.endswith("@3") and name.startswith("rubric_")} == {
        f"rubric_{name}@3" for name in counts
    }
    assert rows["rubric_missing"] == missing
    for name, counted in counts.items():
        outcomes = Outcomes.from_counts(counted, weights=SCHEMATA[name].weights)
        posterior = hbayes_at_n(outcomes)
        row = f"rubric_{name}@3"
        assert rows[row] == pytest.approx(posterior.mu, rel=1e-12)
        assert rows[f"{row}_stderr"] == pytest.approx(posterior.sigma, rel=1e-12)
        interval = posterior.interval()
        assert rows[f"{row}_low"] == pytest.approx(interval.low, rel=1e-12)
        assert rows[f"{row}_high"] == pytest.approx(interval.high, rel=1e-12)


def test_the_samples_hold_every_signal_and_no_rubric_row():
    _, results = run(task(rubric_schemata="exact_match"))
    sample = results["samples"]["toy"][2]
    signals = sample["signals"]
    assert signals["token_ratio"] == [3 / 8, 5 / 8, 7 / 8]
    assert signals["is_correct"] == [0.0, 1.0, 1.0]
    assert signals["has_box"] == [0.0, 0.0, 0.0]
    assert signals["completion_bpt"] == [0.2, 2.5, None]
    assert not any(key.startswith("rubric_") for key in sample)
    json.dumps(sample, allow_nan=False, default=str)


def test_what_a_model_does_not_record_has_no_rows_and_cannot_be_asked_for(caplog):
    model = SignallingLM(cannot_record=["completion_bpt", "prompt_bpt"])
    rows, _ = run(task(), model)
    shown = {row.partition("@")[0] for row in rows if row.startswith("rubric_") and "@" in row}
    schemata = ("exact_match", "format_aware", "strict_compliance", "length_robust")
    assert shown == {f"rubric_{name}" for name in (*schemata, "efficiency_adjusted")}
    with refused("rubric_schemata", "missing", error=TaskConfigError):
        run(task(rubric_schemata=["verifier_only"]), model)
    assert len(model.requests) == 9  # the refusal came before sampling


def test_a_plain_model_gives_no_rubric_rows_and_a_warning(caplog):
    script = {prompt: [text for text, *_ in rows] for prompt, (_, rows) in TRIALS.items()}
    rows, _ = run(task(), ScriptedLM(script))
    assert not any("rubric" in row for row in rows)
    assert "sample with --model trials" in caplog.text
    assert rows["avg@3"] == pytest.approx(5 / 9)


def test_frozen_thresholds_cut_instead_of_the_run_s_own(tmp_path):
    frozen = Thresholds({"toy": TaskThresholds(ratio_p33=0.9, ratio_p66=0.95)}, ("other run",))
    file = tmp_path / "thresholds.json"
    file.write_text(frozen.to_json())
    metadata = {"rubric_thresholds": str(file), "rubric_schemata": "efficiency_adjusted"}
    rows, results = run(task(**metadata, rubric_prior="bayes"))
    # every trial but the one that did not end is economical
    counts = np.zeros((3, 7), int)
    counts[0, [1, 4]] = 1, 2
    counts[1, [0, 1, 4]] = 1
    counts[2, [1, 4]] = 1, 2
    expected = bayes_at_n(
        Outcomes.from_counts(counts, weights=SCHEMATA["efficiency_adjusted"].weights)
    )
    assert rows["rubric_efficiency_adjusted@3"] == pytest.approx(expected.mu)
    assert rows["rubric_thresholds"] == frozen.of("toy").hash
    assert results["configs"]["toy"]["metadata"]["bayes"]["rubrics"]["thresholds"] == frozen.hash


RULES = {
    "name": "terse",
    "categories": ["bad", "long", "short"],
    "weights": [0, 0.5, 1],
    "rules": [
        {"category": "bad", "when": "invalid or wrong"},
        {"category": "short", "when": "completion_tokens < 5"},
        {"category": "long", "otherwise": True},
    ],
}


def test_rules_of_one_s_own():
    rows, _ = run(task(rubric_own=RULES, rubric_schemata="exact_match", rubric_prior="bayes"))
    counts = [[1, 0, 2], [2, 1, 0], [1, 2, 0]]
    expected = bayes_at_n(Outcomes.from_counts(counts, weights=[0, 0.5, 1]))
    assert rows["rubric_terse@3"] == pytest.approx(expected.mu)
    assert rows["rubric_terse@3_stderr"] == pytest.approx(expected.sigma)


def test_a_function_of_one_s_own_sees_document_text_and_signals(caplog):
    seen = []

    def choose(document, completion, signals):
        answer = document["answer"]
        document.clear()  # harms nobody
        seen.append((answer, completion, signals["completion_tokens"]))
        if signals["completion_tokens"] == 7:
            raise SystemExit("the judge is \x1b[31masleep")
        if signals["completion_tokens"] == 3:
            return None
        return "yes" if completion == answer else 0

    own = {"name": "judge", "categories": ["no", "yes"], "weights": [0, 1], "category": choose}
    rows, results = run(task(rubric_own=[own], rubric_schemata="exact_match", rubric_prior="bayes"))
    assert seen[0] == ("2", "2", None)  # the first question's own answer is tried first
    assert ("6", "6", 7) in seen
    expected = bayes_at_n(Outcomes.from_counts([[1, 2], [2, 1], [0, 1]]))
    assert rows["rubric_judge@3"] == pytest.approx(expected.mu)
    assert rows["rubric_missing"] == 2
    sample = results["samples"]["toy"][2]
    assert sample["doc"] == {"question": "3 + 3 =", "answer": "6"}
    assert sample["rubric_error_notes"] == {2: r"judge: SystemExit: the judge is \x1b[31masleep"}
    assert "the judge is" in caplog.text
    settings = results["configs"]["toy"]["metadata"]["bayes"]["rubrics"]["own"][0]
    assert settings["name"] == "judge"
    assert "choose" in settings["function"]


def test_a_function_that_never_answers_leaves_every_trial_out(caplog):
    own = {"name": "mute", "categories": ["no", "yes"], "weights": [0, 1]}
    own["category"] = lambda document, completion, signals: None
    rows, _ = run(task(rubric_own=[own], rubric_schemata="exact_match"))
    assert rows["rubric_missing"] == 9
    assert math.isnan(rows["rubric_mute@3"])
    assert "must give a trial a category" in caplog.text


def changed(**changes):
    return {k: v for k, v in {**RULES, **changes}.items() if v is not None}


def with_rule(category, when):
    return changed(rules=[{"category": category, "when": when}, *RULES["rules"]])


@pytest.mark.parametrize(
    ("own", "argument", "rule"),
    [
        ("missing.yaml", "rubric_own", "path"),
        (changed(name="exact_match"), "name", "format"),
        (changed(name="../etc"), "name", "format"),
        (changed(categories=["bad", "bad", "short"]), "categories", "format"),
        (changed(weights=[0, 1]), "weights", "shape"),
        (changed(rules=None), "rubric_own", "conflict"),
        (changed(rules=None, category="judge"), "category", "type"),
        (changed(rules=RULES["rules"][:2]), "rules[1]", "format"),
        (changed(rules=RULES["rules"][::-1]), "rules[0]", "format"),
        (with_rule("nope", "wrong"), "rules[0]", "choice"),
        (with_rule("bad", "__import__('os')"), "rules[0] of rubric terse", "format"),
        (with_rule("bad", "complation_tokens > 5"), "rules", "choice"),
        (changed(extra=1), "rubric_own", "unknown-key"),
        ([RULES, RULES], "rubric_own", "duplicate"),
    ],
)
def test_bad_rubrics_are_refused_when_the_task_loads(own, argument, rule):
    with refused(argument, rule):
        task(rubric_own=own)


def test_two_rules_of_one_category_are_one():
    rules = [
        {"category": "bad", "when": "repeated_pattern >= 0.5"},
        {"category": "bad", "when": "text_loop >= 0.5"},
        *RULES["rules"][1:],
    ]
    (own,) = custom_rubrics(changed(rules=rules), EXAMPLES)
    columns = {
        "repeated_pattern": [None, 0, 1, 0, None],
        "text_loop": [1, 0, 0, 0, 0],
        "completion_tokens": [9, 3, 3, 9, 3],
    }
    table = SignalTable.from_questions([columns])
    # a loop is bad whatever ended it; whether the last one is bad cannot be told
    assert own.schema.classify(table, TaskThresholds()).tolist() == [0, 2, 0, 1, -1]


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"rubric_schemata": ["nope"]}, ("schema", "choice", "nope")),
        ({"rubric_schemata": [1]}, ("rubric_schemata", "type", [1])),
        ({"rubric_thresholds": "nowhere.json"}, ("rubric_thresholds", "path", "nowhere.json")),
        ({"rubric_prior": "flat"}, ("rubric_prior", "choice", "flat")),
        ({"rubric_schemas": "x"}, ("metadata", "unknown-key", "rubric_schemas")),
    ],
)
def test_bad_settings_are_named(metadata, error):
    with refused(*error, error=(InvalidInputError, TaskConfigError)):
        task(**metadata)


def test_a_function_that_fails_on_the_first_answer_is_told_before_sampling():
    def choose(document, completion, signals):
        return signals["completion_tokens"] > 3

    own = {"name": "judge", "categories": ["no", "yes"], "category": choose}
    with refused("category", "failed", None, error=TaskConfigError):
        task(rubric_own=own)

    def strange(document, completion, signals):
        return "perhaps"

    with refused("category", "choice", "perhaps", error=TaskConfigError):
        task(rubric_own={**own, "category": strange})


@pytest.mark.parametrize(
    ("name", "reply", "rubric", "score"),
    [
        ("summaries_rubric", "The bridge was closed.", "summary_quality", [2, 0, 0]),
        ("safety_rubric", "I cannot help with that.", "safety", [1, 2, 1]),
    ],
)
def test_the_examples_load_from_their_yaml(name, reply, rubric, score):
    class Replying(ScriptedLM):
        def generate_until(self, requests, disable_tqdm=False):
            return [reply for _ in requests]

    quick = {"bayes_interval": "normal", "bayes_k": 1}
    manager = TaskManager(include_path=str(EXAMPLES), include_defaults=False, metadata=quick)
    row = toy.evaluate(Replying({}), name, task_manager=manager)["results"][name]
    (own,) = custom_rubrics(f"{rubric}.yaml", EXAMPLES)
    counts = np.zeros((3, len(own.schema.weights)), int)
    counts[np.arange(3), score] = 8
    expected = hbayes_at_n(Outcomes.from_counts(counts, weights=own.schema.weights))
    assert row[f"rubric_{rubric}@8,none"] == pytest.approx(expected.mu, abs=1e-12)
