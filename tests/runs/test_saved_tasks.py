"""Reading saved runs: what counts, what it is called, what is refused."""

import json

import pytest

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.saved_tasks import saved_tasks

ROW = {"doc_id": 0, "outcomes": [1, 0], "filter": "none", "doc_hash": "a", "resps": [["x", "y"]]}
BAYES = {"weights": [0.0, 0.5, 1.0]}


def write(folder, stamp="2026-01-31T10-00-00.512000", task="aime", rows=(ROW,), **results):
    folder.mkdir(parents=True, exist_ok=True)
    config = {task: {"metadata": {"bayes": BAYES}}}
    content = {"configs": config, "model_name": "org/model", **results}
    (folder / f"results_{stamp}.json").write_text(json.dumps(content))
    samples = folder / f"samples_{task.replace('/', '__')}_{stamp}.jsonl"
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return samples


def test_the_newest_samples_of_every_model_and_task_count(tmp_path):
    write(tmp_path / "a", "2026-01-01T00-00-00.1")
    newest = write(tmp_path / "a", "2026-01-02T00-00-00.1")
    other = write(tmp_path / "b", task="group/sums")
    found = saved_tasks([tmp_path])
    assert [(one.model, one.task, one.samples) for one in found] == [
        ("org/model", "aime", newest),
        ("org/model", "group/sums", other),
    ]
    assert found[0].weights == (0.0, 0.5, 1.0)
    assert saved_tasks([newest, tmp_path / "a"])[0].samples == newest
    assert len(saved_tasks([newest, tmp_path / "a"])) == 1


@pytest.mark.parametrize(
    ("results", "name"),
    [
        ({}, "org/model"),
        ({"model_name": "/data/models/checkpoint-500"}, "checkpoint-500"),
        ({"model_name": "./mine"}, "mine"),
        ({"model_name": ""}, "folder"),
        (
            {
                "model_name": "qdpv68r5",
                "config": {
                    "model": "trials",
                    "model_args": {"backend": "biased_coin", "store": "s", "beta": "2:3"},
                },
            },
            "biased_coin beta=2:3",
        ),
        ({"config": [1], "configs": 3}, "org/model"),
        ({"config": {"model": "hf", "model_args": {"pretrained": "org/model"}}}, "org/model"),
    ],
)
def test_what_a_model_is_called(tmp_path, results, name):
    write(tmp_path / "folder", **results)
    (one,) = saved_tasks([tmp_path])
    assert one.model == name


def test_models_of_one_name_are_told_apart(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b")
    assert [one.model for one in saved_tasks([tmp_path])] == ["org/model", "org/model (2)"]


def test_rows_come_in_order_and_of_the_first_filter(tmp_path):
    rows = [
        {**ROW, "doc_id": 2},
        {**ROW, "doc_id": 1},
        {**ROW, "doc_id": 1, "filter": "other"},
    ]
    write(tmp_path, rows=rows)
    (one,) = saved_tasks([tmp_path])
    assert [(row["doc_id"], row["filter"]) for row in one.rows()] == [(1, "none"), (2, "none")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "hold samples"),
        ('{"doc_id": 0, "outc', "cannot be read"),
        ('{"doc_id": 0}\n', "hold graded trials"),
        ("[1]\n", "line 1 is no object"),
        ("[" * 100_000, "line 1: "),
        (json.dumps({**ROW, "doc_id": "zero"}), "number its questions"),
        (json.dumps(ROW) + "\n" + json.dumps(ROW), "question 0 twice"),
    ],
)
def test_samples_that_are_no_whole_samples_are_refused(tmp_path, text, message):
    write(tmp_path).write_text(text)
    (one,) = saved_tasks([tmp_path])
    with pytest.raises(InvalidInputError, match=message):
        one.rows()


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="with logged samples"):
        saved_tasks([tmp_path])
    with pytest.raises(InvalidInputError, match="`run` must be a run's output folder"):
        saved_tasks([tmp_path / "nowhere"])
    samples = write(tmp_path)
    with pytest.raises(InvalidInputError, match="hold task other; there is aime"):
        saved_tasks([tmp_path], task="other")
    samples.with_name("results_2026-01-31T10-00-00.512000.json").write_text("{")
    with pytest.raises(InvalidInputError, match=r"have a whole .*results_"):
        saved_tasks([tmp_path])


def asked(temperature=0.6, n=2, **model_args):
    config = {
        "generation_kwargs": {"temperature": temperature, "do_sample": True},
        "metadata": {"bayes": {**BAYES, "n": n}},
    }
    arguments = {"pretrained": "org/model", **model_args}
    return {"configs": {"aime": config}, "config": {"model": "hf", "model_args": arguments}}


def test_runs_of_other_settings_in_one_folder_all_count(tmp_path):
    for day, settings in enumerate(
        [{}, {"temperature": 0.2}, {"seed": 7}, {"batch_size": 8}, {"n": 1}], 1
    ):
        write(tmp_path, f"2026-01-0{day}T00-00-00.1", **asked(**settings))
    found = saved_tasks([tmp_path])
    # the first was made again on the fourth day, and on the fifth with fewer trials
    assert [(one.model, one.stamp[9]) for one in found] == [
        ("org/model (temperature=0.6)", "4"),
        ("org/model (temperature=0.2)", "2"),
        ("org/model (temperature=0.6, seed=7)", "3"),
    ]


def test_samples_that_lack_questions_are_refused(tmp_path):
    write(tmp_path, **{"n-samples": {"aime": {"original": 9, "effective": 2}}})
    (one,) = saved_tasks([tmp_path])
    with pytest.raises(InvalidInputError, match=r"all 2 questions .* is cut off; got '?1 que"):
        one.rows("RUN")
