"""A run of a task as users bring it: its folder and its trial store are the same run."""

from __future__ import annotations

import json
import sqlite3

import pytest
from _support.command_line import called
from _support.harness_command import lm_eval_command

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.runs.provenance import generation
from lm_eval_bayes.store.verify import verify

N, QUESTIONS = 4, 6

#: No max_gen_toks, stop strings in an order of their own, and a filter that sorts last comes first.
YAML = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {data}}}
test_split: train
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["Q:", "</s>", "A:"], do_sample: true, temperature: 0.6}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
filter_list:
  - name: strict
    filter: [{{function: regex, regex_pattern: 'NOTHING ([0-9]+)'}}, {{function: take_first}}]
  - name: flexible
    filter: [{{function: regex, regex_pattern: '([0-9]+)'}}, {{function: take_first}}]
metadata: {{version: 1.0}}
"""


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sums")
    rows = [{"question": f"{i} + {i}?", "answer": str(2 * i)} for i in range(10, 10 + QUESTIONS)]
    data = folder / "sums.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "sums.yaml").write_text(YAML.format(data=data), encoding="utf-8")
    run(folder)
    return folder


def run(folder, output="out"):
    lm_eval_command(
        *("--model", "trials", "--tasks", "sums_bayes", "--include_path", folder),
        *("--model_args", f"backend=biased_coin,beta=2:3,store={folder}/sums.sqlite"),
        *("--metadata", json.dumps({"bayes_n": N}), "--output_path", folder / output),
        "--log_samples",
        folders=[folder],
    )


def read(*arguments):
    code, printed, error = called(*arguments, "--json")
    assert code == 0, error
    return json.loads(printed)


@pytest.mark.parametrize(
    "filter",
    ["strict", *(pytest.param(name, marks=pytest.mark.slow) for name in (None, "flexible"))],
)
def test_they_have_the_same_scores(sampled, filter):
    chosen = () if filter is None else ("--filter", filter)
    folder, store = (
        read("summary", sampled / name, *chosen)["tasks"] for name in ("out", "sums.sqlite")
    )
    for (task,) in (folder, store):
        assert task["filter"] == (filter or "strict")
        assert task["trials"] == N * QUESTIONS
    assert folder[0]["avg"] == store[0]["avg"]
    assert (folder[0]["avg"]["value"] > 0) == (filter == "flexible")


@pytest.mark.parametrize("command", ["compare", "summary", "rank"])
def test_together_they_are_refused_or_one(sampled, command):
    runs = (sampled / "out", sampled / "sums.sqlite")
    code, printed, error = called(command, *runs)
    assert (code, printed) == (2, "")
    assert f"{N * QUESTIONS} of {N * QUESTIONS} trials" in error
    if command == "summary":
        (task,) = read(command, *runs, "--dedupe")["tasks"]
        assert (task["trials"], task["model"]) == (N * QUESTIONS, "biased_coin beta=2:3")


def test_a_filter_that_a_task_lacks_leaves_it_out(sampled, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for file in (sampled / "out").rglob("*_*.json*"):
        text = file.read_text(encoding="utf-8").replace('"flexible"', '"loose"')
        (other / file.name.replace("sums", "other")).write_text(
            text.replace("sums_bayes", "other_bayes"), encoding="utf-8"
        )
    both = (sampled / "out", other)
    content = read("summary", *both, "--filter", "loose")
    assert [task["task"] for task in content["tasks"]] == ["other_bayes"]
    assert any("has no filter 'loose'" in warning for warning in content["warnings"])
    code, _, error = called("summary", *both, "--filter", "nowhere")
    assert (code, "must be a filter of" in error) == (2, True)


def test_a_text_that_was_changed_is_named_and_sampled_again(sampled, tmp_path, caplog):
    store = tmp_path / "sums.sqlite"
    for name in ("sums.yaml", "sums.jsonl"):
        (tmp_path / name).write_bytes((sampled / name).read_bytes())
    with sqlite3.connect(sampled / "sums.sqlite") as source, sqlite3.connect(store) as target:
        source.backup(target)
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE trials SET text = CAST('42' AS BLOB) WHERE trial = 2")
    (read_task,) = (content := read("summary", store))["tasks"]
    assert read_task["trials"] == N * QUESTIONS
    assert any("6 texts of task sums_bayes damaged" in text for text in content["warnings"])
    run(tmp_path, output="again")
    assert "6 stored trials are damaged and sampled again: trial 2 of prompt" in caplog.text
    assert verify(store).ok
    with sqlite3.connect(sampled / "sums.sqlite") as before, sqlite3.connect(store) as after:
        texts = "SELECT text, seed FROM trials ORDER BY prompt, trial"
        assert after.execute(texts).fetchall() == before.execute(texts).fetchall()


def test_the_order_of_stop_strings_does_not_matter():
    first, second = ({"until": stops} for stops in (["b", "a"], ["a", "b"]))
    assert generation(first) == generation(second) == {"until": ["a", "b"]}


def test_a_score_that_is_found_forbidden_after_sampling_costs_no_response(tmp_path, capsys):
    metric = "def grades(doc, results):\n"
    metric += "    return {'share': float('nan') if 'Therefore' in results[0] else 0.5}\n"
    (tmp_path / "grading.py").write_text(metric, encoding="utf-8")
    data = tmp_path / "sums.jsonl"
    rows = [{"question": f"{i} + {i}?", "answer": str(2 * i)} for i in range(QUESTIONS)]
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    text = YAML.format(data=data).partition("metric_list:")[0]
    text += "process_results: !function grading.grades\n"
    text += "metric_list: [{metric: share, aggregation: mean, higher_is_better: true}]\n"
    text += "metadata: {version: 1.0, bayes_bounds: [0, 1]}\n"
    (tmp_path / "sums.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(TaskConfigError, match="a score from 0 to 1, its bayes_bounds; got nan"):
        run(tmp_path)
    assert "|hbayes@4" in capsys.readouterr().out
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    assert [len(line["resps"][0]) for line in lines] == [N] * QUESTIONS
    code, printed, error = called("summary", tmp_path / "out")
    assert (code, printed) == (2, "")
    assert "must have numbers of the metric share of task sums_bayes; got task sums_bayes" in error
