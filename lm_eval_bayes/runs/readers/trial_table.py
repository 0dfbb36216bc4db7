"""Tables with one row per trial, or with one row per question and lists of its trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.logged_texts import TextLog, TrialText
from lm_eval_bayes.runs.readers.column_names import (
    find_columns,
    is_missing,
    is_trial_table,
    measurement,
    other_columns,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Query
from lm_eval_bayes.runs.readers.tables import LogFile, columns_of, rows_of, uniform
from lm_eval_bayes.runs.readers.trial_columns import TrialColumns, partial_runs, record_key
from lm_eval_bayes.runs.readers.trial_texts import one_text, place_of, texts_log, written

#: A table that would do, shown where one is refused.
EXAMPLE = "question,trial,score / q1,0,1 / q1,1,0"

#: Columns that name a run, or its seed: if all rows are of one, their trials have no numbers.
_RUNS = ("run", "run_id", "seed")

#: The kinds of columns that hold measurements of a trial.
_MEASURED = ("tokens", "cost", "time")

#: The kinds of columns of which a list has an element per trial.
_PER_TRIAL = ("score", "answer", *_MEASURED)

#: The kinds of columns that are read when a text is asked for.
_ON_DEMAND = ("response", "target")

#: What numbers the trials of a row that has lists of them.
_IN_LIST = "place in the list"


@dataclass
class TrialTable:
    """A table of trials: its columns, and how its rows are found again.

    Attributes
    ----------
    file : Path
        The file, or what the table is called.
    names : sequence of str
        The names of all columns.
    columns : dict
        The names of the columns by kind, from `find_columns`.
    by_name : dict
        The columns that are read, and those that may be models, questions or answers too.
    again : callable
        Returns the rows with all of their fields.
    texts : TextLog or None
        The texts that the models wrote, of which every row is a record.
    notes : list of str
        How the columns were read.
    """

    file: Path
    names: Sequence[str]
    columns: dict[str, str]
    by_name: dict[str, list[Any]]
    again: Callable[[], Iterable[object]]
    texts: TextLog | None = None
    notes: list[str] = field(default_factory=list)

    def __getitem__(self, kind: str) -> list[Any]:
        """Return the column of a kind; an empty one where the table has none."""
        return self.by_name.get(self.columns.get(kind, ""), [])

    def others(self, kind: str) -> list[str]:
        """Return the further columns that may be of a kind."""
        return other_columns(kind, self.names, self.columns)

    def n_distinct(self, *columns: Sequence[Any]) -> int:
        """Return how many distinct rows columns have, together with those of models and tasks."""
        own = [self[kind] for kind in ("model", "task") if self[kind]]
        return len(set(zip(*(map(str, column) for column in (*own, *columns)), strict=True)))


def is_mine(file: LogFile) -> bool:
    """Return whether a file has columns of questions and of scores."""
    return is_trial_table(file.columns)


def read(file: Path, query: Query) -> FileContents:
    """Read a table of trials.

    Raises
    ------
    InvalidInputError
        If the file is no complete table, two columns have one name, a row lacks its question, some
        rows lack their model or task, or a score is none.
    """
    names = LogFile(file).columns
    columns = find_columns(names, query.columns, query.cluster)
    check_columns(names, columns)
    others = (other_columns(kind, names, columns) for kind in ("question", "model", "answer"))
    at_once = [name for kind, name in columns.items() if kind not in _ON_DEMAND]
    wanted = list(dict.fromkeys([*at_once, *chain.from_iterable(others)]))
    rows = rows_of(file, wanted)
    by_name = columns_of(uniform(rows, names), wanted)
    once = [name for name, times in Counter(names).items() if times == 1]
    again = partial(rows_of, file, once, unique_keys=False)
    table = TrialTable(file, names, columns, by_name, again)
    if "response" in columns:
        needed = [columns[kind] for kind in ("score", *_ON_DEMAND) if kind in columns]
        texts_of = partial(_texts, columns=columns)
        table.texts = texts_log(file, rows, texts_of, partial(rows_of, file, needed))
    contents = table_contents(table, query)
    return replace(contents, warnings=(*getattr(rows, "warnings", ()), *contents.warnings))


def check_columns(names: Sequence[str], columns: Mapping[str, str]) -> None:
    """Refuse a table without columns of questions and scores, or with two of one name."""
    for kind in ("question", "score"):
        if kind not in columns:
            rule = f"have a column of {kind}s, as in {EXAMPLE} (`columns` chooses: {kind}=NAME)"
            raise InvalidInputError.of("RUN", "missing-column", rule, ", ".join(names))
    times = Counter(names)
    for name in columns.values():
        if times[name] > 1:
            raise InvalidInputError.of("RUN", "duplicate", f"have one column {name}", times[name])


def table_contents(table: TrialTable, query: Query, model: str = "") -> FileContents:
    """Return the runs of a table, with notes on how its columns were read.

    Parameters
    ----------
    table : TrialTable
        The table.
    query : Query
        What is read.
    model : str
        The model where no column names one; by default it is named after the file.

    Raises
    ------
    InvalidInputError
        If a row lacks its question, a score is none, or a trial occurs twice.
    """
    file, columns = table.file, table.columns
    places = _split_lists(table)
    if "model" not in query.columns:
        _tell_agents_apart(table)
    _choose_answers(table)
    _check_numbering(table, query)
    trials = TrialColumns(
        question=table["question"],
        score=table["score"],
        model=table["model"] or model,
        task=table["task"] or "",
        trial=table["trial"] or None,
        setting=table["setting"] or None,
        cluster=table["cluster"] or None,
        category=table["category"] or None,
        text=table["text"] or None,
        answer=table["answer"] or None,
        measured=_measured(table),
        texts=table.texts,
        places=places,
    )
    if trials.trial is None and "response" in columns:  # without texts, equal rows tell nothing
        trials.records = list(map(record_key, table.again()))
    runs = partial_runs(trials, file, query, metric=columns["score"])
    warnings = [f"{file.name}: {w}" for w in _warnings(table, "question" in query.columns)]
    read = [kind for kind in columns if kind not in _ON_DEMAND or table.texts is not None]
    renamed = [f"{kind}={columns[kind]}" for kind in read if kind != columns[kind]]
    notes = [f"columns of tables: {', '.join(renamed)}"] * bool(renamed)
    notes += [f"{file.name}: {note}" for note in table.notes]
    tasks = tuple(dict.fromkeys(run.task for run in runs))
    return FileContents(runs, tasks, warnings=tuple(warnings), notes=tuple(notes))


def _texts(row: Mapping[str, Any], *, columns: Mapping[str, str]) -> list[TrialText]:
    """Return the text of a row, or those of the trials in its lists, and the right answer."""
    score, response, right = (row.get(columns.get(kind, "")) for kind in ("score", *_ON_DEMAND))
    if not isinstance(score, list):
        return one_text(written(response), right)
    if not isinstance(response, list) or len(response) != len(score):
        rule = f"have a list in column {columns['response']} where {columns['score']} has one"
        raise InvalidInputError.of("RUN", "shape", rule, "none, or one of another length")
    return [text for part in response for text in one_text(written(part), right)]


def _split_lists(table: TrialTable) -> list[int] | None:
    """Give every trial of a list a row; return the trials' places, None where there are no lists.

    Of the other columns a list of that length has an element for each trial; what else stands in
    the row is the same for all of its trials, but for measurements, which are then unknown.
    """
    scores, kinds = table["score"], {name: kind for kind, name in table.columns.items()}
    if not any(isinstance(score, list) for score in scores):
        return None
    sizes = [len(score) if isinstance(score, list) else 0 for score in scores]
    for name, values in table.by_name.items():
        kind = kinds.get(name, "")
        column: list[Any] = []
        for row, (value, size) in enumerate(zip(values, sizes, strict=True), 1):
            n_values = len(value) if isinstance(value, list) else None
            if not size or (kind in _PER_TRIAL and n_values not in (None, size)):
                rule = f"have lists of one length, 1 or more, in a row of {table.file.name}"
                got = f"{size} in column {table.columns['score']}, {n_values} in {name} (row {row})"
                raise InvalidInputError.of("RUN", "shape", rule, got)
            shared = None if kind in _MEASURED else value
            column += value if n_values == size else [shared] * size
        table.by_name[name] = column
    table.columns["trial"] = _IN_LIST
    table.by_name[_IN_LIST] = [trial for size in sizes for trial in range(size)]
    return [place_of(row, trial) for row, size in enumerate(sizes) for trial in range(size)]


def _choose_answers(table: TrialTable) -> None:
    """Take the first column of answers of which no text is right and wrong in one question.

    One of such texts holds the right answers of the questions, which tell no vote.
    """
    trials = [table[kind] for kind in ("model", "task", "question", "score") if table[kind]]
    if len({str(score) for score in table["score"] if not is_missing(score)}) > 2:
        return  # scores of one answer may differ
    for name in [table.columns.get("answer", ""), *table.others("answer")]:
        grades: dict[tuple[Any, ...], Any] = {}
        for *question, score, text in zip(*trials, table.by_name.get(name, []), strict=False):
            key = (*map(str, question), str(text))
            if is_missing(text) or is_missing(score) or grades.setdefault(key, score) == score:
                continue
            shown = f"{one_line(key[-1], 40)} is right and wrong in question {key[-2]}"
            table.notes.append(f"{name} does not hold the answers of the trials: {shown}")
            break
        else:
            table.columns |= {"answer": name} if name else {}
            return
    del table.columns["answer"]


def _measured(table: TrialTable) -> dict[str, list[float | None]]:
    """Return the columns of measurements, without those that have a value that is none."""
    measured = {}
    for kind in [kind for kind in _MEASURED if kind in table.columns]:
        measured[kind] = list(map(measurement, table[kind]))
        both = zip(table[kind], measured[kind], strict=True)
        if wrong := [v for v, number in both if number is None and not is_missing(v)]:
            why = f"{one_line(repr(wrong[0]), 40)} is no number of at least 0"
            table.notes.append(f"the column {table.columns.pop(kind)} ({kind}) is left out: {why}")
            del measured[kind]
    return measured


def _tell_agents_apart(table: TrialTable) -> None:
    """Keep systems of one model apart, such as agents."""
    are_named = all(str(name or "").strip() for name in table["model"])
    for other in table.others("model") if are_named else []:
        models = table["model"]
        pairs = [f"{m} ({name})" for m, name in zip(models, table.by_name[other], strict=True)]
        if len(set(pairs)) > len(set(map(str, models))):
            name = table.columns["model"]
            table.notes.append(f"a model is one of {name} with its {other}")
            table.by_name[name] = pairs


def _check_numbering(table: TrialTable, query: Query) -> None:
    """Leave out a column of trials that is empty, or names the one run that all trials are of."""
    labels = set(map(str, table["trial"]))
    is_run = "trial" not in query.columns and table.columns.get("trial") in _RUNS
    if labels and all(map(is_missing, table["trial"])):
        reason = "is empty: every row is a trial"
    elif is_run and len(labels) == 1 and table.n_distinct(table["question"]) < len(table["trial"]):
        reason = "is the same in all rows, which are trials"
    else:
        return
    table.notes.append(f"{table.columns.pop('trial')} {reason}")


def _warnings(table: TrialTable, is_chosen: bool) -> list[str]:
    """Return a warning where rows may be repeated, or the column of questions may number them."""
    kinds = [table[kind] for kind in ("model", "task", "question") if table[kind]]
    labels = [[str(value).strip() for value in column] for column in kinds]
    sizes = set(Counter(zip(*labels, strict=True)).values())
    if not table["trial"] and len(sizes) > 1:
        size = f"{min(sizes)} to {max(sizes)}"
        return [f"no column numbers the trials, and questions have {size} rows (repeated rows?)"]
    columns = {name: table.by_name[name] for name in table.others("question")}
    if len(set(map(str, table["trial"]))) > 1:
        columns[table.columns["trial"]] = table["trial"]
    n_rows = len(table["question"])
    repeat = [name for name, column in columns.items() if table.n_distinct(column) < n_rows]
    if is_chosen or sizes != {1} or not repeat:
        return []
    name = table.columns["question"]
    return [
        f"every row is another question by its column {name}, although values of {repeat[0]} "
        f"repeat; if {name} numbers the rows, --columns question=NAME names that of the questions"
    ]
