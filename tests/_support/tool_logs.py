"""Logs of other tools: their outcomes, their rows and files, and broken ones."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

from _support.command_line import called
from lm_eval_bayes.runs.reader import read_runs

DATA = Path(__file__).parents[1] / "runs" / "readers" / "data"

#: What a value of a JSON file may become.
ODD = (
    *(None, True, -1, 0.5, 7, 1e308, 10**400, float("nan"), float("inf")),
    *("", "x", "\ud800", "C", [], {}, [[]], [None], {"": {}}, ["a", 1], {"value": []}),
)


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


# -- broken files ------------------------------------------------------------------------------


def mutated_bytes(content, seed):
    """Return bytes with a part changed, removed, doubled, or cut off."""
    chance = random.Random(seed)
    at = chance.randrange(len(content))
    size = chance.choice((1, 1, 2, 8, 100))
    kind = chance.randrange(5)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + content[at + size :]
    if kind == 2:
        return content[: at + size] + content[at:]
    if kind == 3:
        return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]
    return content[:at] + chance.randbytes(size) + content[at + size :]


def mutated_json(content, seed, n=3):
    """Return a JSON value in which some values are removed or replaced."""
    chance = random.Random(seed)
    content = copy.deepcopy(content)
    for _ in range(chance.randint(1, n)):
        node, place = content, None
        for _ in range(chance.randint(1, 9)):
            if not isinstance(node, (dict, list)) or not node:
                break
            place = (
                node,
                chance.choice(list(node) if isinstance(node, dict) else range(len(node))),
            )
            node = node[place[1]]
        if place is None:
            continue
        if chance.random() < 0.3:
            del place[0][place[1]]
        else:
            place[0][place[1]] = copy.deepcopy(chance.choice(ODD))
    return content


def nested(depth=100_000):
    """Return a JSON text that is nested deeply."""
    return "[" * depth + "]" * depth
