"""The texts of other tools' logs: those of the log, trial by trial, and nothing that was replaced.

What the logs hold is taken out of them here with a few lines of their own for every format.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile

import pyarrow
import pyarrow.parquet
import pytest
from _support.errors import refused
from _support.tables import write_rows
from _support.tool_logs import DATA, content_of, rows_of, write_lines

from lm_eval_bayes.runs.question_texts import question_texts
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.trial_texts import written
from lm_eval_bayes.verifiers.judged_trials import files_to_judge


def texts_of(*paths, **query):
    """Return by model, task and question the texts of the trials, and the right answers."""
    texts, right = {}, {}
    for run in read_runs(paths, **query).runs:
        for number, id in enumerate(run.question_ids):
            read = question_texts(run, number)
            texts[run.model, run.task, id] = list(read.responses)
            right[id] = read.right_answers
    return texts, right


def grouped(rows):
    """Return lists of texts by what rows of (key, order, text) have in common, in order."""
    groups = {}
    for key, order, text in rows:
        groups.setdefault(key, []).append((order, text))
    return {key: [text for _, text in sorted(pairs)] for key, pairs in groups.items()}


def inspect_samples(model):
    content = json.loads((DATA / "inspect_ai" / f"{model}.json").read_text(encoding="utf-8"))
    return content["eval"], content["samples"]


def reply(sample):
    choices = sample["output"]["choices"]
    return choices[0]["message"]["content"] if choices else None


def test_inspect_ai():
    read, right = texts_of(DATA / "inspect_ai" / "weak.eval")
    evaluation, samples = inspect_samples("weak")
    key = evaluation["model"], evaluation["task"]
    expected = grouped(((*key, s["id"]), s["epoch"], reply(s)) for s in samples if s["scores"])
    assert read == expected
    assert {id: answer for id, (answer,) in right.items()} == {
        s["id"]: s["target"] for s in samples
    }
    assert texts_of(DATA / "inspect_ai" / "weak.json") == (read, right)
    assert {"4", "9", None} <= {text for texts in read.values() for text in texts}


def test_lighteval():
    folder = DATA / "lighteval" / "details" / "strong"
    read, right = texts_of(folder)
    expected, gold = {}, {}
    for file in folder.rglob("*.parquet"):
        for row in pyarrow.parquet.read_table(file).to_pylist():
            doc = row["doc"]
            expected["strong", doc["task_name"], doc["id"]] = row["model_response"]["text"]
            gold[doc["id"]] = (doc["choices"][doc["gold_index"]],)
    assert {key[1:]: texts for key, texts in read.items()} == {
        key[1:]: texts for key, texts in expected.items()
    }
    assert right == gold
    assert len({len(texts) for texts in read.values()}) == 2  # one sample, and four


def test_evalscope():
    read, right = texts_of(DATA / "evalscope" / "weak")
    rows, gold = [], {}
    for file in (DATA / "evalscope" / "weak" / "reviews").rglob("*.jsonl"):
        for row in rows_of(file):
            about = row["sample_score"]
            key = "weak", file.stem, str(about["group_id"])
            rows.append((key, about["generation_index"], row["messages"][-1]["content"]))
            targets = row["target"] if isinstance(row["target"], list) else [row["target"]]
            gold[str(about["group_id"])] = tuple(targets)
    assert read == grouped(rows)
    assert right.keys() == gold.keys()


def test_matharena():
    read, right = texts_of(DATA / "matharena" / "outputs")
    expected = {}
    for file in (DATA / "matharena" / "outputs").rglob("*.json.zst"):
        raw = pyarrow.input_stream(file, compression="zstd").read()
        problem = json.loads(raw)
        texts = [messages[-1]["content"] for messages in problem["messages"]]
        graded = [t for t, c in zip(texts, problem["correct"], strict=True) if isinstance(c, bool)]
        expected["/".join(file.parts[-3:-1]), str(problem["idx"])] = graded
        assert right[str(problem["idx"])] == (problem["gold_answer"],)
    assert {(model, id): texts for (model, _, id), texts in read.items()} == expected


@pytest.mark.parametrize("name", ["strong", "weak"])
def test_tau2_bench(name):
    file = DATA / "tau2" / f"{name}.json"
    read, _ = texts_of(file)
    n_calls = 0
    content = content_of(file)
    by_task = {id: texts for (_, _, id), texts in read.items()}
    for id, texts in by_task.items():
        simulations = [s for s in content["simulations"] if s["task_id"] == id]
        simulations = [s for s in simulations if s["termination_reason"] != "infrastructure_error"]
        simulations.sort(key=lambda simulation: simulation["trial"])
        assert len(simulations) == len(texts)
        for simulation, text in zip(simulations, texts, strict=True):
            for message in simulation["messages"]:
                assert (message["content"] or "") in (text or "")
                for call in message["tool_calls"] or []:
                    n_calls += 1
                    assert json.dumps(call, sort_keys=True) in text
    assert n_calls > 3


def test_nemo_skills(tmp_path):
    for seed in range(2):
        rows = [
            {"problem": f"{q} + 1 = ?", "expected_answer": q + 1, "symbolic_correct": seed == 1}
            | {"generation": f"thinking {q}.{seed}"}
            for q in range(3)
        ]
        write_lines(tmp_path / f"output-rs{seed}.jsonl", rows)
    read, right = texts_of(tmp_path)
    assert list(read.values()) == [[f"thinking {q}.{seed}" for seed in range(2)] for q in range(3)]
    assert list(right.values()) == [("1",), ("2",), ("3",)]
    # the outputs of NeMo-Skills' own tests have no texts
    read, _ = texts_of(DATA / "nemo_skills" / "published" / "eval-results" / "gpqa")
    assert {text for texts in read.values() for text in texts} == {None}


def test_traces_of_verifiers():
    file = DATA / "verifiers_traces" / "weak" / "traces.jsonl"
    read, right = texts_of(file)
    texts, failed = {}, 0
    for episode in rows_of(file):
        (trace,) = episode["traces"]
        answer = episode["task"]["data"]["answer"]
        failed += not trace["ok"]
        if trace["ok"]:
            texts.setdefault(answer, []).append(trace["nodes"][-1]["message"]["content"])
    assert failed == 1
    assert {right[id][0]: sorted(of_id) for (_, _, id), of_id in read.items()} == {
        answer: sorted(of_answer) for answer, of_answer in texts.items()
    }


# -- tables --------------------------------------------------------------------------------------

ROWS = [
    {
        "model": model,
        "id": f"q{q}",
        "question": f"{q} + 1 = ?",
        "trial": trial,
        "score": None if (q, trial) == (1, 1) else (q + trial) % 2,
        "response": f"{model} says\n{q}.{trial}, “then”\t{q + trial}",
        "gold_answer": str(q + 1),
    }
    for trial in range(3)
    for q in range(4)
    for model in ("A", "B")
]
EXPECTED = {
    (model, "outcomes", f"q{q}"): [
        f"{model} says\n{q}.{trial}, “then”\t{q + trial}"
        for trial in range(3)
        if (q, trial) != (1, 1)  # which has no score
    ]
    for model in ("A", "B")
    for q in range(4)
}


def table(path):
    """Write the rows as the ending of the path says."""
    return write_rows(path, ROWS, "utf-8", row_group_size=5)


@pytest.mark.parametrize(
    "name",
    [
        *("t.jsonl", "t.jsonl.gz", "t.csv", "t.tsv", "t.csv.gz", "t.parquet"),
        "t.arrow",
    ],
)
def test_tables_with_a_column_of_texts(tmp_path, name):
    read, right = texts_of(table(tmp_path / name))
    assert read == EXPECTED
    assert right == {f"q{q}": (str(q + 1),) for q in range(4)}


def test_texts_of_merged_files_stay_with_their_trials(tmp_path):
    whole = tmp_path / "t.jsonl"
    lines = table(whole).read_text(encoding="utf-8").splitlines(keepends=True)
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text("".join(lines[::2]), encoding="utf-8")  # model A
    second.write_text("".join(lines[1::2]), encoding="utf-8")
    assert texts_of(first, second)[0] == EXPECTED
    first.write_text("".join(lines[-8:]), encoding="utf-8")  # the last trial of all questions
    second.write_text("".join(lines[:-8]), encoding="utf-8")
    assert texts_of(first, second)[0] == EXPECTED


# -- files that change ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet"])
def test_a_file_that_was_replaced_is_refused(tmp_path, name):
    file = table(tmp_path / name)
    (run, _) = read_runs([file]).runs
    other = tmp_path / "other"
    shutil.copy(file, other)
    other.replace(file)  # another file with the same content
    with refused("RUN", "damaged", "other content"):
        question_texts(run, 0)
    file.unlink()
    with refused("RUN", "damaged", "no file"):
        question_texts(run, 0)


def test_lines_may_be_appended(tmp_path):
    file = table(tmp_path / "t.jsonl")
    (run, _) = read_runs([file]).runs
    with file.open("a", encoding="utf-8") as lines:
        lines.write("{}\n")
    assert list(question_texts(run, 0).responses) == EXPECTED["A", "outcomes", "q0"]
    with file.open("r+", encoding="utf-8") as lines:
        lines.truncate(10)
    with refused("RUN", "damaged", "other content"):
        question_texts(run, 0)


def test_a_damaged_sample_is_left_out_with_a_sentence(tmp_path):
    file = tmp_path / "weak.eval"
    content = bytearray((DATA / "inspect_ai" / "weak.eval").read_bytes())
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        at = archive.getinfo("samples/a_epoch_1.json").header_offset
    content[at : at + 60] = bytes(60)
    file.write_bytes(content)
    (run,) = read_runs([file]).runs
    read = question_texts(run, run.question_ids.index("a"))
    assert (read.responses, read.n_damaged) == ((None, "5", "4"), 1)


# -- conversations, pages, verifiers ---------------------------------------------------------------


def test_conversations():
    call = {"function": {"name": "add", "arguments": '{"a": 1}'}}
    own = {"id": "1", "function": "add", "arguments": {"a": 1}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "an example", "source": "input"},
        {"role": "user", "content": "2+2?"},
        {
            "role": "assistant",
            "content": [{"type": "reasoning", "reasoning": "hm"}, {"text": "ok"}],
        },
        {"role": "assistant", "content": "", "tool_calls": [call, own]},
        {"role": "tool", "name": "add", "content": "4"},
    ]
    called = "\n".join(json.dumps(part, sort_keys=True) for part in (call, own))
    assert written(messages) == (
        f"[assistant]\nhm\nok\n\n[assistant]\n\n{called}\n\n[tool (add)]\n4"
    )
    assert written(messages[:4]) is None
    for odd in (None, 7, [], [None], [[]], {"role": "assistant"}, [{"role": "assistant"}]):
        assert written(odd) in (None, "")


def test_a_verifier_reads_samples_of_the_harness_only():
    runs = read_runs([DATA / "verifiers_traces" / "strong"]).runs
    with refused("RUN", "unsupported"):
        files_to_judge(runs)
