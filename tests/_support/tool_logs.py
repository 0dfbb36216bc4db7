"""Logs of other tools: their outcomes, their rows and files, and broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from _support.command_line import called
from lm_eval_bayes.runs.reader import read_runs

DATA = Path(__file__).parents[1] / "runs" / "readers" / "data"


def summary(*arguments):
    """Return the tasks of `summary --json`, by model and task, and what was said besides."""
    code, printed, error = called("summary", *arguments, "--json")
    assert code == 0, error
    tasks = json.loads(printed)["tasks"]
    return {(task["model"], task["task"]): task for task in tasks}, error


def counted_by_hand(outcomes):
    """Return scores by model and question without those that are None, as runs leave them out."""
    return {
        model: {id: [s for s in scores if s is not None] for id, scores in of_model.items()}
        for model, of_model in outcomes.items()
    }


def means_by_setting(run):
    """Return the share of right trials in every setting of a run, by its label."""
    setting, right = np.concatenate(run.setting), np.concatenate(run.trials)
    return {label: right[setting == code].mean() for code, label in enumerate(run.settings)}


def in_order(outcomes):
    """Return the scores of every question sorted: rollouts run side by side, in any order."""
    return {
        model: {question: sorted(scores) for question, scores in of_model.items()}
        for model, of_model in outcomes.items()
    }


def rows_of(file):
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write_lines(file, rows):
    """Write rows as JSON lines; return the file."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def content_of(file):
    """Return the content of a file of JSON."""
    return json.loads(file.read_text(encoding="utf-8"))


def written(folder, content, name="results.json"):
    """Write a JSON file into a folder; return the file."""
    file = folder / name
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def outcomes_of(path, **query):
    """Return by model and question the scores of the trials, in order, of one task."""
    runs = read_runs([path], **query).runs
    return {
        run.model: {
            id: (run.outcomes.scores[i] if run.scored else run.trials[i]).tolist()
            for i, id in enumerate(run.question_ids)
        }
        for run in runs
    }


def nested(depth=100_000):
    """Return a JSON text that is nested deeply."""
    return "[" * depth + "]" * depth
