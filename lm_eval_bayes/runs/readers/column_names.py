"""Columns of tables: their names, and numbers in them that are written as texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from lm_eval_bayes._util.text import first_names
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import number

#: For every kind of column its names in lower case, the most telling one first.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "question": (
        *("question_id", "problem_id", "problem_idx", "task_id", "instance_id", "sample_id"),
        *("item_id", "doc_id", "example_id", "qid", "id", "question_ids", "ids"),
        *("item", "problem", "question", "questions", "index", "idx", "input"),
    ),
    "text": ("question", "problem", "question_text"),  # where another column identifies it
    "model": ("model", "model_name", "agent", "agent_name", "models"),
    "task": ("task", "benchmark", "task_name", "dataset", "tasks"),
    "trial": (
        *("trial", "trial_id", "epoch", "idx_answer", "attempt", "attempt_id", "repeat"),
        *("repetition", "run", "run_id", "rollout", "rollout_id", "seed", "sample"),
    ),
    "setting": ("setting",),
    "score": (
        *("score", "correct", "is_correct", "reward", "resolved", "passed", "success"),
        *("outcome", "is_resolved", "is_success", "result", "graded_list"),
    ),
    "answer": ("parsed_answer", "predicted_answer", "extracted_answer", "answer", "prediction"),
    "response": (
        *("response", "response_text", "model_response", "raw_response", "completion"),
        *("generation", "generated_text", "output", "output_text", "model_output", "raw_output"),
        "answer",  # beside the answer that was extracted from it
    ),
    "target": (
        *("target", "gold_answer", "gold", "expected_answer", "correct_answer"),
        *("reference_answer", "ground_truth", "reference"),
        *("reference_output", "reference output"),
    ),
    "tokens": ("completion_tokens", "output_tokens", "tokens", "n_tokens"),
    "cost": ("cost", "cost_usd", "total_cost"),
    "time": ("time", "seconds", "duration", "latency"),
    "cluster": ("cluster",),
    "category": ("category",),
}

#: Names of a column or an array of question ids, of models, of tasks and of trial numbers.
IDS, MODELS, TASKS, TRIALS = (
    frozenset(ALIASES[kind]) for kind in ("question", "model", "task", "trial")
)

#: The name of a column that holds one trial of one model: a word for a trial and a number.
_NUMBERED = re.compile(
    r"(?:trial|attempt|run|repeat|rep|repetition|epoch|gen|generation|rollout|iter|iteration"
    r"|sample|seed|try|outcome|score|pass|correct|resp|response|answer|[rtsixyk])?"
    r"[ _#.@:-]{0,2}\d{1,9}",
    re.I,
)

#: The name of the task of outcomes in a file that names none.
UNNAMED = "outcomes"


def is_numbered_trial(name: str) -> bool:
    """Return whether a column is one trial of a model, by its name.

    Examples
    --------
    >>> [is_numbered_trial(name) for name in ("epoch1", "gen_0", "run 12", "7", "gpt-4")]
    [True, True, True, True, False]
    """
    return _NUMBERED.fullmatch(name) is not None


def is_trial_word(name: str) -> bool:
    """Return whether a column has the name of a trial: a word of three letters or more, a number.

    Examples
    --------
    >>> [is_trial_word(name) for name in ("epoch1", "run_2", "r1", "k2", "7")]
    [True, True, False, False, False]
    """
    return is_numbered_trial(name) and len(re.sub(r"[\W\d_]", "", name)) > 2


def find_columns(
    names: Sequence[str], chosen: Mapping[str, str], cluster: str | None = None
) -> dict[str, str]:
    """Return which column of a table is of which kind.

    Parameters
    ----------
    names : sequence of str
        The names of the columns.
    chosen : mapping
        Columns by kind, as `--columns question=item,score=pass` names them.
    cluster : str, optional
        The column of clusters, as `--cluster` names it.

    Returns
    -------
    dict
        The names of columns by kind; a kind without a column is absent.

    Raises
    ------
    InvalidInputError
        If a chosen column is not in the table.

    Examples
    --------
    >>> find_columns(["agent", "instance_id", "resolved"], {})
    {'question': 'instance_id', 'model': 'agent', 'score': 'resolved'}
    """
    lower: dict[str, str] = {}
    for name in names:
        lower.setdefault(name.strip().lower(), name)
    columns: dict[str, str] = {}
    for kind, name in [*chosen.items(), *([("cluster", cluster)] if cluster else ())]:
        columns[kind] = name if name in names else lower.get(name.strip().lower(), "")
        if not columns[kind]:
            argument = "cluster" if name == cluster else "columns"
            rule = f"name a column of the table ({first_names(names, 8)})"
            raise InvalidInputError.of(argument, "missing-column", rule, f"{kind}={name}")
    for kind, aliases in ALIASES.items():
        taken = [name for of, name in columns.items() if of != "cluster" or cluster is None]
        free = [lower[alias] for alias in aliases if alias in lower and lower[alias] not in taken]
        if kind not in columns and free:
            columns[kind] = free[0]
    return {kind: columns[kind] for kind in ALIASES if kind in columns}


def other_columns(kind: str, names: Sequence[str], columns: Mapping[str, str]) -> list[str]:
    """Return the further columns that may be of a kind, by their names.

    Examples
    --------
    >>> columns = {"question": "id", "score": "score"}
    >>> other_columns("question", ["id", "problem", "score"], columns)
    ['problem']
    """
    aliases = ALIASES[kind]
    taken = {name for of_kind, name in columns.items() if of_kind != "text"}
    return [name for name in names if name.strip().lower() in aliases and name not in taken]


def is_trial_table(names: Iterable[str]) -> bool:
    """Return whether a table has one row per trial: columns of scores, and of questions or trials.

    Examples
    --------
    >>> is_trial_table(["question", "model", "correct"])
    True
    >>> is_trial_table(["question", "gpt-4", "claude"])
    False
    """
    lower = {name.strip().lower() for name in names}
    if "promptidx" in lower:  # promptfoo's: its id is that of a row, of any model and prompt
        return False
    has = {kind: not lower.isdisjoint(ALIASES[kind]) for kind in ("question", "score", "trial")}
    return has["score"] and (has["question"] or has["trial"])


def parse_columns(text: str | None) -> dict[str, str]:
    """Return the columns that a text such as "question=item,score=pass" chooses, by kind.

    Raises
    ------
    InvalidInputError
        If a part is not KIND=COLUMN, or there is no such kind.

    Examples
    --------
    >>> parse_columns("question=item, score=pass")
    {'question': 'item', 'score': 'pass'}
    """
    chosen: dict[str, str] = {}
    for part in (text or "").split(",") if text else ():
        kind, sign, name = part.partition("=")
        kind, name = kind.strip(), name.strip()
        if not sign or kind not in ALIASES or not name or kind in chosen:
            rule = f"be KIND=COLUMN parts, each of another kind ({', '.join(ALIASES)})"
            raise InvalidInputError.of("columns", "format", rule, part.strip() or text)
        chosen[kind] = name
    return chosen


def parse_bounds(text: str | None) -> tuple[float, float] | None:
    """Return the lowest and the highest score of a text such as "0:10"; None for None.

    Raises
    ------
    InvalidInputError
        If it is not two finite numbers, the second larger.

    Examples
    --------
    >>> parse_bounds("1:5")
    (1.0, 5.0)
    """
    if text is None:
        return None
    numbers = [number(part) for part in text.split(":")]
    low, high = numbers if len(numbers) == 2 else (None, None)
    if low is None or high is None or low >= high:
        rule = "be two numbers, the lowest and a higher one, such as 0:10"
        raise InvalidInputError.of("bounds", "format", rule, text)
    return low, high


#: Texts that stand for no number.
MISSING = ("", "na", "n/a", "nan", "none", "null")


def is_missing(value: object) -> bool:
    """Return whether a cell is empty, NaN, or a text that stands for no number.

    Examples
    --------
    >>> [is_missing(cell) for cell in (None, " n/a", float("nan"), 0, "0")]
    [True, True, True, False, False]
    """
    is_empty = isinstance(value, str) and value.strip().lower() in MISSING
    return is_empty or value is None or value != value


def measurement(value: Any) -> float | None:
    """Return a finite number of at least 0, or its text, or a duration; None for anything else.

    Examples
    --------
    >>> [measurement(value) for value in (12, "7.5", "", None, "12k", -3)]
    [12.0, 7.5, None, None, None, None]
    """
    real = number(value.total_seconds() if isinstance(value, timedelta) else value)
    return None if real is None or real < 0 else real
