"""Runs of `lm-eval-bayes run` with the biased coin, in the tests' own process."""

from __future__ import annotations

import json

from _support.harness_command import few_tasks
from lm_eval_bayes.cli.commands.run import StoppingOptions, run

TASK = "demo_arithmetic_bayes"


def started(
    folder,
    name,
    *arguments,
    task=TASK,
    model_args="beta=2:3",
    metadata='{"bayes_interval": "normal", "bayes_k": 1}',
    code=0,
    **goal,
):
    """Run until the goal is reached; return the results file's content and the samples.

    The table's intervals are quick ones; those of the interim analyses are always exact.
    """
    output = folder / name
    words = ["--model", "biased_coin", "--model_args", model_args, "--tasks", task]
    words += ["--output_path", str(output), "--log_samples", "--limit", "12"]
    options = StoppingOptions(**{"store": str(folder / f"{name}.sqlite"), **goal})
    with few_tasks():
        assert run([*words, "--metadata", metadata, *arguments], options) == code
    results = json.loads(max(output.rglob("results_*.json")).read_text())
    samples = [
        json.loads(line)
        for file in sorted(output.rglob("samples_*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return results, samples


def rounds_of(results):
    """Return the rounds in a results file."""
    return results["config"]["stopping"]["rounds"]
