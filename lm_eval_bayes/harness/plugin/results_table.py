"""The rows that the harness prints of this package's tasks: a few by default.

The results and the samples hold every row. Of a task of this package the harness's table shows the
rows that `bayes_rows` names, the most important first; rows of other metrics and of other tasks are
not changed.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import error_of_run
from lm_eval_bayes.harness.plugin import patches

log = get_logger(__name__)

#: Names of the rows of this package.
_OURS = re.compile(
    r"h?(bayes|avg|pass|g-pass|mg-pass|maj)[@^]\d.*|grading_errors"
    r"|rubric_.+@\d+(_low|_high)?|rubric_missing|rubric_thresholds"
)

#: The rows of the short table, in their order; rows that count something are shown above 0 only.
_SHORT = (
    r"hbayes@\d+",
    r"hbayes@\d+_low",
    r"hbayes@\d+_high",
    r"bayes@\d+",
    r"avg@\d+",
    r"pass@1",
    r"pass@largest",
    r"hpass@largest",
    r"maj@\d+",
    r"hmaj@\d+",
    r"rubric_.+@\d+",
    r"grading_errors|rubric_missing",
)
#: Rows of the short table for each metric after the first, in their order.
_OF_OTHERS = re.compile(
    r"hbayes@\d+(\(.+\))|hbayes@\d+(\(.+\))_low|hbayes@\d+(\(.+\))_high|avg@\d+(\(.+\))"
)

_COUNTS = ("grading_errors", "rubric_missing")

#: The place of rows of other metrics, behind those of this package.
_LAST = 1_000_000


class _OrderedKey(str):
    """A key of a task's results that sorts by a position; the harness sorts by name."""

    position: tuple[int, str, int]

    def __new__(cls, key: str, position: tuple[int, str, int]) -> _OrderedKey:
        self = super().__new__(cls, key)
        self.position = position
        return self

    def __lt__(self, other: str) -> bool:
        if isinstance(other, _OrderedKey):
            return self.position < other.position
        return str(self) < other


def is_ours(results: Mapping[str, Any]) -> bool:
    """Return whether the results of a task or group hold rows of this package.

    Examples
    --------
    >>> is_ours({"alias": "x", "hbayes@8,none": 0.5}), is_ours({"exact_match,none": 0.5})
    (True, False)
    """
    return any(re.match(r"(hbayes|rubric_.+)@\d", key) for key in results)


def drop_empty_stderrs(results: Mapping[str, Any]) -> None:
    """Remove the keys ``…_stderr,FILTER`` that hold "N/A" from the rows of this package's tasks.

    The harness adds one to every row, also to those that are a posterior sd or the end of an
    interval themselves.

    Parameters
    ----------
    results : mapping
        What the harness's `evaluate` returns; the mappings of its tasks are changed.
    """
    for task in results.get("results", {}).values():
        if not is_ours(task):
            continue
        for key in list(task):
            row, _, pipeline = key.partition(",")
            of = row.removesuffix("_stderr")
            is_empty = row != of and task[key] == "N/A"
            if is_empty and _OURS.fullmatch(of) and f"{of},{pipeline}" in task:
                del task[key]


def install() -> None:
    """Print the rows that `bayes_rows` names; print all where the harness has no such function."""
    problem = patches.install(patches.MAKE_TABLE, _with_chosen_rows)
    if problem is not None:
        log.debug("%s: its table shows every row", problem)


def _with_chosen_rows(original: Callable[..., str]) -> Callable[..., str]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def make_table(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given, column = bound.arguments["result_dict"], bound.arguments["column"]
        if any(map(is_ours, given.get(column, {}).values())):
            chosen = {
                name: chosen_rows(rows, rows_setting(name, given)) if is_ours(rows) else rows
                for name, rows in given[column].items()
            }
            n_hidden = sum(_n_rows(given[column][name]) - _n_rows(chosen[name]) for name in chosen)
            if n_hidden:
                rows, pronoun = ("row is", "it") if n_hidden == 1 else ("rows are", "them")
                sentence = "%d more %s in the results; bayes_rows=all prints %s"
                log.info(sentence, n_hidden, rows, pronoun)
            bound.arguments["result_dict"] = {**given, column: chosen}
        table = original(*bound.args, **bound.kwargs)
        errors = error_of_run(given)
        if errors:
            # the harness has saved results and samples, and prints nothing of its own after a table
            print(table)
            raise TaskConfigError(errors, "failed")
        return table

    return make_table


def _n_rows(results: Mapping[str, Any]) -> int:
    """Return the number of rows; text of this package, such as a hash, is no row."""
    rows = [(key.partition(","), value) for key, value in results.items()]
    return sum(
        bool(comma)
        and not row.endswith("_stderr")
        and not (isinstance(value, str) and _OURS.fullmatch(row))
        for (row, comma, _), value in rows
    )


def rows_setting(name: str, results: Mapping[str, Any]) -> str | Sequence[str]:
    """Return the setting `bayes_rows` of a task, or of the first task of a group.

    Parameters
    ----------
    name : str
        The task or group.
    results : mapping
        What `simple_evaluate` returns.
    """
    for task in (name, *results.get("group_subtasks", {}).get(name, ())):
        config = results.get("configs", {}).get(task)
        if config is not None:
            metadata = config.get("metadata") or {}
            checked = metadata.get("bayes") or {}
            options = [m for m in config.get("metric_list") or () if m.get("metric") == "bayes"]
            setting = checked.get("rows") or (options[0].get("rows") if options else None)
            return setting or "short"
    return "short"


def chosen_rows(results: Mapping[str, Any], setting: str | Sequence[str]) -> dict[str, Any]:
    """Return the results of one task with the chosen rows alone, as keys that sort in their order.

    Parameters
    ----------
    results : mapping
        The results of a task: ``ROW,FILTER`` -> value, and keys without a comma.
    setting : "short", "all" or sequence of str
        The rows: a few, all, or those whose names match one of some shell patterns, such as
        ``pass@*``. Rows of other metrics follow them. Text, such as a hash, is no row.

    Examples
    --------
    >>> rows = {"pass@2,none": 0.7, "hbayes@8,none": 0.5, "pass@8,none": 0.9, "exact,none": 0.4}
    >>> sorted(chosen_rows(rows, "short"))
    ['hbayes@8,none', 'pass@8,none', 'exact,none']
    >>> sorted(chosen_rows(rows, ["pass@*"]))
    ['pass@2,none', 'pass@8,none', 'exact,none']
    """
    largest = max((int(k) for key in results for k in re.findall(r"^pass@(\d+),", key)), default=1)
    chosen: dict[str, Any] = {}
    for index, (key, value) in enumerate(results.items()):
        row, comma, _ = key.partition(",")
        of = row.removesuffix("_stderr")
        if not comma:
            chosen[_OrderedKey(key, (-1, "", index))] = value
        elif not _OURS.fullmatch(of):
            chosen[_OrderedKey(key, (_LAST, "", index))] = value
        elif not isinstance(value, str) or row != of:
            rank = _rank(of, value, largest, setting)
            if rank is not None:
                chosen[_OrderedKey(key, (rank, "", index))] = value
            elif setting == "short" and (other := _OF_OTHERS.fullmatch(of)):
                place = other.lastindex or 0
                chosen[_OrderedKey(key, (len(_SHORT), other[place], place))] = value
    return chosen


def _rank(row: str, value: Any, largest: int, setting: str | Sequence[str]) -> int | None:
    """Return the place of a row of this package among the chosen ones, None if it is not one."""
    if setting == "all":
        return 0
    if setting != "short":
        patterns = [setting] if isinstance(setting, str) else setting
        return next((i for i, p in enumerate(patterns) if fnmatchcase(row, p)), None)
    if row in _COUNTS and not value:
        return None
    if row in (f"pass@{largest}", f"hpass@{largest}") and largest > 1:
        row = row.replace(str(largest), "largest")
    return next((i for i, p in enumerate(_SHORT) if re.fullmatch(p, row)), None)
