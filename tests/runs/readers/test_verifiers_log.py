"""Results of verifiers 0.1.14, which `data/verifiers/make.py` made.

The expected numbers are those of `metadata.json`, which verifiers computed; the rewards were
counted by hand from the answers in `make.py`.
"""

import numpy as np
import pytest
from _support.errors import refused
from _support.tool_logs import (
    DATA,
    content_of,
    in_order,
    outcomes_of,
    rows_of,
    summary,
    write_lines,
    written,
)

from lm_eval_bayes.runs.reader import read_runs

RESULTS = DATA / "verifiers"
WEAK, STRONG = (RESULTS / f"sums--org--{name}" / "run1" for name in ("weak", "strong"))
NEAR = RESULTS / "near-sums--org--weak" / "run1"

RIGHT = {
    "org/weak": {"0": [1, 1, 0, 1], "1": [0, 1, 0, 0], "2": [1, 1, 0, 0], "3": [1, 1, 1, 1]},
    "org/strong": {"0": [1, 1, 1, 1], "1": [1, 1, 0, 1], "2": [1, 1, 1, 1], "3": [0, 1, 1, 1]},
}
#: 0.75 for the answer and 0.25 for one beside it or itself; an error is 0
PARTIAL = {
    "org/weak": {
        "0": [1, 1, 0.25, 1],
        "1": [0.25, 1, 0.25, 0.25],
        "2": [1, 1, 0, 0.25],
        "3": [1, 1, 1, 1],
    }
}


def metadata(folder):
    return content_of(folder / "metadata.json")


@pytest.fixture
def rows():
    return rows_of(WEAK / "results.jsonl")


@pytest.fixture
def write(tmp_path):
    """Write rollouts, with the metadata of a run unless told otherwise."""

    def write(rows, name="run2", **changes):
        folder = tmp_path / "sums--org--other" / name
        folder.mkdir(parents=True, exist_ok=True)
        write_lines(folder / "results.jsonl", rows)
        content = {**metadata(WEAK), **changes}
        if changes.get("metadata", True):
            written(folder, content, "metadata.json")
        return folder

    return write


def test_the_outcomes_were_counted_by_hand():
    right = outcomes_of(WEAK) | outcomes_of(STRONG)
    assert in_order(right) == in_order(RIGHT)
    assert in_order(outcomes_of(NEAR)) == in_order(PARTIAL)


@pytest.mark.parametrize("folder", [WEAK, STRONG, NEAR], ids=lambda folder: folder.parent.name)
def test_the_numbers_are_those_of_verifiers(folder):
    ((_, run),) = summary(folder)[0].items()
    expected = metadata(folder)
    assert (run["task"], run["model"]) == (expected["env_id"], expected["model"])
    assert run["avg"]["value"] == pytest.approx(expected["avg_reward"])
    for k in "24":
        assert run["rows"][f"pass@{k}"] == pytest.approx(expected["pass_at_k"][k])
        assert run["rows"][f"pass^{k}"] == pytest.approx(expected["pass_all_k"][k])


@pytest.mark.parametrize("metric", ["right", "near"])
def test_metrics_are_chosen_by_name(metric):
    ((_, of_model),) = outcomes_of(WEAK, metric=metric).items()
    mean = np.mean([np.mean(scores) for scores in of_model.values()])
    assert mean == pytest.approx(metadata(WEAK)["avg_metrics"][metric])


def test_tokens_settings_and_version_are_read():
    (run,) = read_runs([STRONG]).runs
    assert run.tokens == 4 * (1 + 2 + 3 + 4)  # as the server in make.py says
    assert run.provenance.generation_kwargs == {"temperature": 0.7, "max_tokens": 16}
    assert run.provenance.versions == {"verifiers": "0.1.14"}
    assert run.questions[0] == "1 + 1 = ?"


def test_a_field_of_info_names_clusters(rows, write):
    (run,) = read_runs([STRONG], cluster="part").runs
    assert run.clusters == ("I", "I", "II", "II")
    for row in rows[:4]:  # one question has no such field
        row["info"] = {}
    with refused("cluster", "missing"):
        read_runs([write(rows)], cluster="part")


def test_settings_may_be_texts_and_lists(rows, write):
    sent = {"stop": ["Q:"], "reasoning_effort": "high", "top_p": None, "api_key": "x"}
    (run,) = read_runs([write(rows, sampling_args=sent)]).runs
    assert run.provenance.generation_kwargs == {"stop": ["Q:"], "reasoning_effort": "high"}


def test_names_are_those_of_the_folder_without_metadata(rows, write):
    (run,) = read_runs([write(rows, metadata=False)]).runs
    assert (run.model, run.task) == ("org/other", "sums")


def test_metrics_of_earlier_releases_are_columns(rows, write):
    for row in rows:
        del row["metrics"]
        row["timing"] = {"generation_ms": 1500, "scoring_ms": 1, "total_ms": 1501}
    folder = write(rows)
    ((model, of_model),) = outcomes_of(folder, metric="right").items()
    assert in_order({model: of_model}) == in_order({model: RIGHT[model]})
    (run,) = read_runs([folder]).runs
    assert run.busy_seconds == pytest.approx(1.5 * 16)


def test_a_reward_that_is_no_number_is_refused(rows, write):
    rows[1]["reward"] = float("nan")
    with refused("RUN", "range"):
        read_runs([write(rows)])
