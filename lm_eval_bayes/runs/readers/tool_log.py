"""Logs of other tools: what a reader says of a trial, and what all readers have in common.

A reader yields a :class:`Trial` for every trial of a line or of a document. Which metric counts,
the numbers and the identities of trials, the runs of one setting, notes on errors, and texts that
are read on demand are the same for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.text import join_words, one_line, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import lookup
from lm_eval_bayes.runs.logged_texts import PER_RECORD, TextLog, TrialText
from lm_eval_bayes.runs.provenance import generation
from lm_eval_bayes.runs.readers.json_files import clusters_of, json_text
from lm_eval_bayes.runs.readers.protocol import (
    FileContents,
    NothingToCountError,
    Query,
    choice_note,
    files_below,
)
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.text_files import JsonLines
from lm_eval_bayes.runs.readers.trial_columns import (
    MEASURED,
    TrialColumns,
    numbers_in_run,
    partial_runs,
    record_key,
)
from lm_eval_bayes.runs.readers.trial_texts import (
    SpooledRecords,
    one_text,
    place_of,
    texts_log,
    written,
)
from lm_eval_bayes.runs.task_run import Provenance
from lm_eval_bayes.runs.trials import PartialRun

#: The names of settings in the logs; keys, addresses and headers are never among them.
SETTINGS = (
    *("temperature", "top_p", "top_k", "min_p", "do_sample", "seed"),
    *("max_tokens", "max_new_tokens", "max_completion_tokens", "max_gen_toks"),
    *("tokens_to_generate", "stop", "stop_seqs", "until"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "system_message"),
    *("reasoning_effort", "reasoning_tokens", "effort", "verbosity"),
)


def call_settings(arguments: object) -> dict[str, Any]:
    """Return the generation settings among the arguments of a model's calls.

    Examples
    --------
    >>> call_settings({"temperature": 0.6, "api_key": "x", "top_p": None, "max_tokens": 512})
    {'temperature': 0.6, 'max_tokens': 512}
    """
    given = {key: lookup(arguments, key) for key in SETTINGS}
    kinds = (int, float, str, list)
    return {k: v for k, v in given.items() if isinstance(v, kinds) and v not in ("", [])}


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A trial as a log holds it.

    Attributes
    ----------
    question, model, task, text, answer
        As in :class:`~lm_eval_bayes.runs.readers.trial_columns.TrialColumns`. A model of "" has the
        name of the file: where all files have one name, give the folder's.
    tokens, time, cost : float or None
        Measurements, the time in seconds.
    key : hashable
        The tool's own id of the trial; by default what tells its record from others is taken.
    document : mapping
        The fields of the question that may name clusters.
    scores : mapping of str to object
        By metric a number, true or false; None where the trial has none: give every trial all
        metrics. The first name of the first trial counts unless the user names another.
    label : object
        The number of the trial in its question, a whole number from 0 to 2^19; None where the log
        does not number trials.
    run : str
        The tool's id of the run, or when it started, by which copies are recognised; trials are
        numbered within it. "" where a number means the same in all files of a model, as a seed
        does.
    setting : str
        A label of what the run varied, such as its prompt; trials are numbered within it. "" where
        the log varied nothing.
    error : str
        What ended the trial, in a word of the tool such as "timeout", never a message, which may
        quote a key; "" for nothing. It counts by its score.
    reply, right : object
        What the model wrote, a text or the messages of a conversation, and the right answers.
    provenance : Provenance
        How the trial was sampled. Trials of other settings, or of another setup, are another run.
    place : int
        Where the record is that holds it; set by :class:`ToolLog`.
    """

    question: str = ""
    model: str = ""
    task: str = ""
    text: str = ""
    answer: str = ""
    tokens: Any = None
    time: float | None = None
    cost: Any = None
    key: Hashable = None
    document: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] = field(default_factory=dict)
    label: Any = None
    run: str = ""
    setting: str = ""
    error: str = ""
    reply: Any = None
    right: Any = None
    provenance: Provenance = field(default_factory=Provenance)
    place: int = PER_RECORD - 1  # no text

    @property
    def settings(self) -> dict[str, Any]:
        """What tells runs of one model apart."""
        sent, setup = self.provenance.generation_kwargs, self.provenance.setup
        return generation(sent) | dict(setup or {})


def begins_with(*keys: str) -> Callable[[LogFile], bool]:
    """Return whether the first line of a file is a JSON object with these keys, as a function."""
    return lambda file: file.first_line.keys() >= set(keys)


def matches(beginning: re.Pattern[bytes], *suffixes: str) -> Callable[[LogFile], bool]:
    """Return whether the name and the first bytes of a file are those of a log, as a function."""
    ends = suffixes or (".json",)
    return lambda file: bool(file.name.endswith(ends) and beginning.match(file.beginning))


class ToolLog:
    """The trials of a file of JSON lines, of a document, or of a folder of documents.

    Parameters
    ----------
    file : Path
        The file, or the folder.
    query : Query
        What is read.
    trials_of : callable
        Returns the trials of a record; by default the record is one.
    records : callable, optional
        Reads the records, for a query; called again when texts are asked for. By default the file
        has a record in every line.

    Attributes
    ----------
    trials : list of Trial
        The trials; a reader may change them before it asks for the contents.
    texts : TextLog or None
        Where the texts are, by the places of the trials; None where the log holds none.
    warnings : list of str
        What was left out.

    Raises
    ------
    InvalidInputError
        If the file is broken.
    """

    def __init__(
        self,
        file: Path,
        query: Query,
        trials_of: Callable[[Any], Iterable[Trial]] = lambda trial: [trial],
        records: Callable[[Query], Iterable[Any]] | None = None,
    ) -> None:
        lines = JsonLines(file)
        self.file, self.query, self.trials = file, query, list[Trial]()
        number = -1
        for number, record in enumerate(lines if records is None else records(query)):
            for part, trial in enumerate(trials_of(record)):
                self.trials.append(self._kept(trial, place_of(number, part), (part, record)))
        self.warnings = list(lines.warnings)

        def texts_of(record: Any) -> list[TrialText]:
            return [one_text(written(t.reply), t.right)[0] for t in trials_of(record)]

        self.texts: TextLog | None
        if records is None:
            self.texts = texts_log(file, lines, texts_of)
        else:
            read, again, numbers = records, Query(), range(number + 1)
            self.texts = SpooledRecords(
                *([file] if file.is_file() else files_below(file)),
                records=lambda: (texts_of(r) for _, r in zip(numbers, read(again), strict=True)),
            )

    def _kept(self, trial: Trial, place: int, record: object) -> Trial:
        """Return a trial with its place and its identity, without what is read on demand."""
        key = trial.key or record_key(record if trial.label is None else trial.label)
        document = trial.document if self.query.cluster else {}
        return replace(trial, key=key, place=place, document=document, reply=None, right=None)

    def contents(self, tool: str, **more: Any) -> FileContents:
        """Return what the query asks for.

        Parameters
        ----------
        tool : str
            The name of the tool.
        **more
            Further attributes of every :class:`PartialRun`.

        Raises
        ------
        NothingToCountError
            If no trial has a score.
        InvalidInputError
            If the query names a metric or a field that there is not, or a trial occurs twice.
        """
        query, tasks = self.query, tuple(dict.fromkeys(trial.task for trial in self.trials))
        wanted = [trial for trial in self.trials if query.task in (None, trial.task or query.task)]
        if self.trials and not wanted:
            return FileContents((), tasks)
        metric, notes = self._metric(wanted)
        is_scored = any(trial.scores.get(metric) is not None for trial in wanted)
        if not is_scored and (query.unscored == "left-out" or not metric):
            rule = f"have scores of trials ({self.file}; --unscored wrong counts those without)"
            got = f"{plural(len(wanted), 'trial')} without"
            raise NothingToCountError.of("RUN", "missing", rule, got)
        by_run: dict[str, list[Trial]] = {}
        for trial in wanted:
            by_run.setdefault(json_text([trial.model, trial.run, trial.settings]), []).append(trial)
        runs: list[PartialRun] = []
        for trials in by_run.values():
            runs += self._runs(trials, metric, tool, notes=notes, **more)
        return FileContents(runs, tasks, warnings=tuple(self.warnings))

    def _metric(self, trials: Sequence[Trial]) -> tuple[str, tuple[str, ...]]:
        """Return the metric of the query, else the first one, with a note that names the others."""
        names, chosen = list(dict.fromkeys(n for t in trials for n in t.scores)), self.query.metric
        if names and chosen is not None and chosen not in names:
            rule = f"be a metric of {self.file}, {join_words(names, 'or')}"
            raise InvalidInputError.of("metric", "choice", rule, chosen)
        return chosen or next(iter(names), ""), choice_note("metric", names, chosen)

    def _runs(
        self, trials: Sequence[Trial], metric: str, tool: str, **more: Any
    ) -> list[PartialRun]:
        """Return the runs of trials of one model, run and setting."""
        first, labels = trials[0], [trial.label for trial in trials]
        numbers: list[Any] | None = None if None in labels else labels
        if first.run and any(label is not None for label in labels):
            numbers = numbers_in_run(first.run, labels, [trial.question for trial in trials])
        answers, documents = [t.answer for t in trials], (t.document for t in trials)
        columns = TrialColumns(
            question=[trial.question for trial in trials],
            score=[trial.scores.get(metric) for trial in trials],
            model=first.model,
            task=[trial.task for trial in trials],
            trial=numbers,
            setting=[trial.setting for trial in trials],
            records=[trial.key for trial in trials],
            cluster=clusters_of(documents, self.query, f"the questions in {self.file.name}"),
            text=[trial.text for trial in trials],
            answer=answers if any(answers) else None,
            remark=[self._remark(trial, metric, tool) for trial in trials],
            measured={kind: [getattr(trial, kind) for trial in trials] for kind in MEASURED},
            texts=self.texts,
            places=[trial.place for trial in trials],
        )
        more |= {"provenance": trials[-1].provenance, "settings": first.settings}
        return partial_runs(columns, self.file, self.query, metric=metric, source=first.run, **more)

    def _remark(self, trial: Trial, metric: str, tool: str) -> str | None:
        """Return how a trial counts that ended in an error; None for others."""
        is_scored = trial.scores.get(metric) is not None
        if not trial.error:
            return None
        how = f"counted by {metric}" if is_scored else "did not count"
        return f"ended with {one_line(trial.error, 40)}, and {how}, as in the metrics of {tool}"
