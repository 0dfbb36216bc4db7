"""maj@k in a run's rows and in `summary`: right answers are one candidate, however written."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("lm_eval", reason="the harness is not installed")

from _support.harness_command import CONFIGS, gateway, lm_eval_command
from typer.testing import CliRunner

from lm_eval_bayes import maj_at_k_posterior
from lm_eval_bayes.cli.main import app

pytestmark = pytest.mark.filterwarnings("default")

TASK = "halves_bayes"
YAML = f"""
include: {CONFIGS}/demo/demo_arithmetic_bayes.yaml
task: {TASK}
custom_dataset: !function halves.load
doc_to_text: "{{{{problem}}}}"
repeats: 5
metadata: {{version: 1.0, bayes_maj_k: 5}}
"""
MODULE = """
import datasets


def load(**arguments):
    rows = [{"problem": name, "answer": "1/2"} for name in ("split", "tied", "beaten")]
    return {"test": datasets.Dataset.from_list(rows)}
"""
#: What five trials answer to each question whose answer is 1/2, and what the vote earns.
ANSWERS = {
    # three right answers, each written in its own way, against two that agree
    "split": (("1/2", "0.5", "\\frac{1}{2}", "3", "3"), 1.0),
    # two against two, and one more that is alone
    "tied": (("1/2", "0.5", "3", "3", "4"), 0.5),
    # two against three
    "beaten": (("1/2", "0.5", "3", "3", "3"), 0.0),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("halves")
    (folder / "halves.yaml").write_text(YAML, encoding="utf-8")
    (folder / "halves.py").write_text(MODULE, encoding="utf-8")
    output = folder / "output"
    with gateway(lambda prompt, trial: f"It is \\boxed{{{ANSWERS[prompt][0][trial]}}}."):
        words = ("--model", "gateway", "--model_args", "pretrained=org/vote", "--tasks", TASK)
        lm_eval_command(*words, "--output_path", output, "--log_samples", folders=[folder])
    return output


def uncertainty():
    """Return the sd and the ends of the interval of maj@5, all right answers written alike."""
    marks = [[answer not in ("3", "4") for answer in answers] for answers, _ in ANSWERS.values()]
    texts = [
        ["1/2" if right else answer for answer, right in zip(answers, row, strict=True)]
        for (answers, _), row in zip(ANSWERS.values(), marks, strict=True)
    ]
    posterior = maj_at_k_posterior(texts, marks, 5)
    interval = posterior.interval()
    return [posterior.sigma, interval.low, interval.high]


def test_the_run_s_row_counts_them_as_one(results):
    (file,) = results.rglob("results_*.json")
    row = json.loads(file.read_text("utf-8"))["results"][TASK]
    expected = sum(earned for _, earned in ANSWERS.values()) / len(ANSWERS)
    assert row["maj@5,none"] == pytest.approx(expected, abs=1e-12)
    assert [row[f"maj@5_{end},none"] for end in ("stderr", "low", "high")] == pytest.approx(
        uncertainty(), abs=1e-12
    )


def test_the_summary_of_the_saved_run_does_too(results):
    result = CliRunner().invoke(app, ["summary", "--json", str(results)])
    assert result.exit_code == 0, result.output
    (task,) = json.loads(result.stdout)["tasks"]
    expected = sum(earned for _, earned in ANSWERS.values()) / len(ANSWERS)
    assert task["rows"]["maj@5"] == pytest.approx(expected, abs=1e-12)
    own = task["rows_uncertainty"]["maj@5"]
    assert [own["sd"], own["interval"]["low"], own["interval"]["high"]] == pytest.approx(
        uncertainty(), abs=1e-12
    )
