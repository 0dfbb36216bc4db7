"""What is read of saved runs: the one declaration of its options, for Python and for commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.readers.column_names import ALIASES, parse_bounds, parse_columns

#: Grades the texts of one question against its target: for every text whether it is right, and
#: the answer that was extracted. Its arguments are the texts, the target, and the marker that ends
#: the reasoning of the model. :func:`lm_eval_bayes.harness.grading.grade.regraded` is one.
Regrade = Callable[[Sequence[str], str, str | None], Sequence[tuple[bool, str | None]]]


def _named(argument: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the names that an option gives paths, by these, of texts such as "model=runs/a"."""
    names = {}
    for text in texts:
        name, sign, path = text.partition("=")
        if not (name and sign and path) or path in names:
            rule = "be NAME=RUN, with one name for every path"
            raise InvalidInputError.of(argument, "format", rule, text)
        names[path] = name
    return names


def _option(default: Any, metavar: str | None, text: str, **more: Any) -> Any:
    """Return a field that is an option of commands, without `metavar` a switch.

    `parse` reads its value from the text of a command line, or from all of them where it is given
    several times (`many`); `option` is another name.
    """
    metadata = {"metavar": metavar, "help": text, **more}
    if default is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Query:
    """What is read of a file; fields with a `help` are the options of commands that read runs.

    Attributes
    ----------
    task, metric, filter, cluster : str or None
        What `help` says of them.
    dedupe : bool or None
        Whether a trial that occurs twice counts once; otherwise it is refused. None if the
        command has no such option.
    regrade : callable or None
        Grades the saved texts again.
    columns : mapping
        The columns of tables by what they hold, where the user chose them: {"question": "item"}.
    bounds : tuple of float or None
        The lowest and the highest possible score; None for 0 and 1.
    unscored : {"left-out", "wrong"}
        What becomes of trials without a score.
    models : mapping
        The names of models by paths: runs in the file or the folder are of that model.
    settings : str or None
        What settings are: one of :data:`lm_eval_bayes.runs.settings.FACTORS`, or a column.
    labels : mapping
        The labels of settings by paths, over all others.
    same_seeds : bool
        What `help` says of it.
    skip_unreadable : bool
        Whether a file that is damaged or may not be read is left out, with a warning.
    signals : {"all", "recorded"} or None
        Whether the signals of all trials are read, or only of runs whose model recorded some.
    verdicts : bool
        Whether the verdicts of a verifier, beside the samples, are among the signals.
    argument : str
        The name of the argument in an error.
    """

    task: str | None = _option(
        None,
        "NAME",
        "Only this task, or the tasks of this group. It also names the task of matrices "
        "and counts whose files name none.",
    )
    metric: str | None = _option(
        None,
        "NAME",
        "The metric to count: one of those in `bayes_metric`, or of a task without repeated "
        "sampling one with values 0 and 1, such as exact_match. By default the only one, or "
        "the first that the task lists.",
    )
    filter: str | None = _option(
        None,
        "NAME",
        "The filter pipeline whose output is graded. By default the first that was logged.",
    )
    dedupe: bool | None = _option(
        False,
        None,
        "Count a trial that was saved twice once, instead of refusing it. A trial is "
        "identified by its seed, number or id in the log, in several files by its text too; "
        "without these, records with a text that are equal in every field are one trial. "
        "Trials that both sides of `compare` hold count on both.",
    )
    regrade: Regrade | None = _option(  # noqa: RUF009  a field
        None,
        None,
        "Grade every saved text again, as a mathematical answer, against the logged "
        "target. Each text is one trial, even where the task gave several texts one grade.",
    )
    cluster: str | None = _option(
        None,
        "FIELD",
        "The field of the logged documents (contest, topic, passage), or the column of a "
        "table, that names the cluster of each question. Scope population then takes the "
        "questions of a cluster as dependent. By default what the task recorded.",
    )
    columns: Mapping[str, str] = _option(
        dict,
        "KIND=COLUMN,…",
        "The columns of tables with one row per trial, where their names are not known: "
        f"question=item,score=pass. Kinds: {', '.join(ALIASES)}.",
        parse=parse_columns,
    )
    bounds: tuple[float, float] | None = _option(
        None,
        "LOW:HIGH",
        "The lowest and the highest possible score of tables and of other tools' logs. By "
        "default 0:1.",
        parse=parse_bounds,
    )
    unscored: Literal["left-out", "wrong"] = _option(
        "left-out",
        "",
        "What becomes of trials without a score in tables and in other tools' logs, as "
        "after an error of an agent: wrong gives them the lowest score.",
    )
    models: Mapping[str, str] = _option(
        dict,
        "NAME=RUN",
        "The name of the model in RUN, a path that is read, or a file or a folder in one. Runs "
        "of one name are one model: their trials are joined. May be given several times.",
        parse=partial(_named, "model"),
        many=True,
        option="model",
    )
    settings: str | None = _option(
        None,
        "KIND",
        "What the settings of a model are: run (a folder or a file), prompt, engine, day, trial, "
        "none, or a column of tables. By default the column `setting`, else run.",
    )
    labels: Mapping[str, str] = _option(
        dict,
        "LABEL=RUN",
        "The setting of RUN, a path that is read, or a file or a folder in one. Such runs of one "
        "name are one model. May be given several times.",
        parse=partial(_named, "setting"),
        many=True,
        option="setting",
    )
    same_seeds: bool = _option(
        False,
        None,
        "Settings may share seeds: a trial of a seed counts in one of them, in turn. By default it "
        "is refused, as such trials depend on each other.",
    )
    skip_unreadable: bool = _option(
        False,
        None,
        "Leave out files that are damaged or may not be read, with a warning for each.",
    )
    signals: Literal["all", "recorded"] | None = None
    verdicts: bool = True
    argument: str = "RUN"
