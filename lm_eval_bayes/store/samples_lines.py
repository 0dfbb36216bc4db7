"""A store read as the lines of the harness's own logs of samples."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes._util.hashing import text_bytes
from lm_eval_bayes.store.checked import CheckedTrials
from lm_eval_bayes.store.descriptions import description_intact
from lm_eval_bayes.store.migrations import OUTCOMES_SCHEMA, PROMPT_SIGNALS_SCHEMA
from lm_eval_bayes.store.outcomes import OutcomeRow, rows_of
from lm_eval_bayes.store.prompt_signals import prompt_signals_intact
from lm_eval_bayes.store.trial import MEASUREMENTS, Trial, TrialKey

#: What the samples of a run log of every trial, before the trial's own signals.
MEASURED = ("trial", *(name for name in MEASUREMENTS if name not in ("created", "signals")))


@dataclass(frozen=True)
class _Asked:
    """A prompt, as one question of a task or, where no task graded it, as itself."""

    prompt: str
    doc_id: int
    pipeline: str = "none"
    doc_hash: str | None = None
    outcomes: tuple[OutcomeRow, ...] | None = None


@dataclass(frozen=True)
class Series:
    """What one file holds: trials of one model and sampling, graded by one task or by none.

    Attributes
    ----------
    model, sampling : str
        Hashes.
    task : tuple of str or None
        Name and version of the task.
    last : float
        When the last trial of this model and sampling was made, in seconds since 1970 UTC.
    lines : iterator of dict
        Each one question through one filter, or one prompt. Read it before the next series.
    """

    model: str
    sampling: str
    task: tuple[str, str] | None
    last: float
    lines: Iterator[dict[str, Any]]


def series_of(
    connection: sqlite3.Connection, schema: int, damaged: set[tuple[object, ...]]
) -> Iterator[Series]:
    """Cut a store into what its files of samples hold.

    Parameters
    ----------
    connection : sqlite3.Connection
        Inside one view of the store.
    schema : int
        The store's schema.
    damaged : set
        Gets one entry for everything read that is not what was written, as lines are read.

    Raises
    ------
    TypeError, ValueError, LookupError
        If a row is damaged.
    """
    pairs = connection.execute(
        "SELECT m.hash, s.hash, model, sampling, max(created), s.description FROM trials "
        "JOIN models AS m ON m.id = model JOIN samplings AS s ON s.id = sampling "
        "GROUP BY model, sampling ORDER BY 1, 2"
    ).fetchall()
    for model, sampling, *ids, last, description in pairs:
        if not description_intact("samplings", sampling, description):
            damaged.add(("sampling", sampling))
        kwargs = generation_kwargs(json.loads(description))
        lines = _Lines(connection, schema, (model, sampling), ids, kwargs, damaged)
        graded = lines.graded()
        for task, asked in sorted(graded.items()):
            yield Series(model, sampling, task, last, map(lines.line, asked))
        seen = {one.prompt for asked in graded.values() for one in asked}
        rest = [prompt for prompt in lines.prompts if prompt not in seen]
        if rest:
            plain = (_Asked(prompt, number) for number, prompt in enumerate(rest))
            yield Series(model, sampling, None, last, map(lines.line, plain))


class _Lines:
    """The lines of one model and sampling."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        schema: int,
        hashes: tuple[str, str],
        ids: Sequence[int],
        kwargs: Mapping[str, Any],
        damaged: set[tuple[object, ...]],
    ) -> None:
        self.connection, self.schema = connection, schema
        self.hashes, self.ids = hashes, ids
        self.kwargs = kwargs
        self.damaged = damaged
        self.trials = CheckedTrials(connection)
        # In the order in which they were described, which is that of the task's data.
        self.prompts: dict[str, int] = dict(
            connection.execute(
                "SELECT p.hash, prompt FROM (SELECT DISTINCT prompt FROM trials "
                "WHERE model = ? AND sampling = ?) JOIN prompts AS p ON p.id = prompt "
                "ORDER BY prompt",
                tuple(ids),
            ).fetchall()
        )

    def graded(self) -> dict[tuple[str, str], list[_Asked]]:
        """Return what was graded, by task and version."""
        if self.schema < OUTCOMES_SCHEMA:
            return {}
        found: dict[tuple[Any, ...], list[OutcomeRow]] = {}
        where = "WHERE o.model = ? AND o.sampling = ?"
        for row in rows_of(self.connection, where, tuple(self.ids)):
            if row.key.prompt in self.prompts:
                if not row.is_intact():
                    self.damaged.add(("outcome", *row.question, row.key, row.trial))
                found.setdefault((*row.question, row.key.prompt), []).append(row)
        tasks: dict[tuple[str, str], list[_Asked]] = {}
        for (task, version, pipeline, doc_id, _, doc_hash, prompt), rows in found.items():
            asked = _Asked(prompt, doc_id, pipeline, doc_hash, tuple(rows))
            tasks.setdefault((task, version), []).append(asked)
        return tasks

    def line(self, asked: _Asked) -> dict[str, Any]:
        """Return one line."""
        number = self.prompts[asked.prompt]
        trials = self._trials(asked.prompt, number)
        texts = [trial.text for trial in trials]
        prompt = self._prompt(asked.prompt, number)
        doc = {"prompt": prompt}
        line = {
            "doc_id": asked.doc_id,
            "doc": doc,
            "target": "",
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": self.kwargs}},
            "resps": [texts],
            "filtered_resps": [texts],
            "filter": asked.pipeline,
            "metrics": [],
            "doc_hash": asked.doc_hash or sha256(json.dumps(doc, indent=2, ensure_ascii=False)),
            "prompt_hash": sha256(prompt),
            "target_hash": sha256(""),
        }
        if asked.outcomes is not None:
            line |= _graded(asked.outcomes, trials)
        of_prompt = self._prompt_signals(asked.prompt, number)
        measured = [_measured(trial, of_prompt) for trial in trials]
        names = dict.fromkeys(name for signals in measured for name in signals)
        line["lengths"] = [len(text) for text in texts]
        line["signals"] = {name: [signals.get(name) for signals in measured] for name in names}
        return line

    def _trials(self, prompt: str, number: int) -> list[Trial]:
        key = TrialKey(model=self.hashes[0], prompt=prompt, sampling=self.hashes[1])
        found = []
        for trial, intact in self.trials.of(key, (*self.ids, number)):
            found.append(trial)
            if not intact:
                self.damaged.add(("trial", key, trial.trial))
        return found

    def _prompt(self, digest: str, number: int) -> str:
        (text,) = self.connection.execute(
            "SELECT description FROM prompts WHERE id = ?", (number,)
        ).fetchone()
        if not description_intact("prompts", digest, text):
            self.damaged.add(("prompt", digest))
        return str(text, "utf-8", "surrogatepass")

    def _prompt_signals(self, prompt: str, number: int) -> dict[str, Any]:
        if self.schema < PROMPT_SIGNALS_SCHEMA:
            return {}
        found = self.connection.execute(
            "SELECT created, signals, hash FROM prompt_signals WHERE model = ? AND prompt = ?",
            (self.ids[0], number),
        ).fetchone()
        if found is None:
            return {}
        model = self.hashes[0]
        if not prompt_signals_intact(found[2], model, prompt, found[:2]):
            self.damaged.add(("prompt_signals", model, prompt))
        return dict(json.loads(found[1]))


def _graded(outcomes: Sequence[OutcomeRow], trials: Sequence[Trial]) -> dict[str, Any]:
    by_number = {row.trial: row.graded_trial() for row in outcomes}
    found = [by_number.get(trial.trial) for trial in trials]
    graded: dict[str, Any] = {
        "outcomes": [None if one is None else one.outcome for one in found],
        "answers": [None if one is None else one.answer for one in found],
    }
    notes = {str(i): one.error for i, one in enumerate(found) if one and one.error is not None}
    return {**graded, "grading_error_notes": notes} if notes else graded


def _measured(trial: Trial, of_prompt: Mapping[str, Any]) -> dict[str, Any]:
    measured = {name: getattr(trial, name) for name in MEASURED}
    return {**measured, **(trial.signals or {}), **of_prompt}


def generation_kwargs(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return generation settings under the names that the harness gives them.

    A store keeps of the stop strings those that the engine got.

    Examples
    --------
    >>> generation_kwargs({"temperature": 0.6, "max_gen_toks": 9, "stops": ["Q:"]})
    {'temperature': 0.6, 'max_gen_toks': 9, 'until': ['Q:'], 'do_sample': True}
    """
    kwargs = {name: value for name, value in sampling.items() if name != "stops"}
    if "stops" in sampling:
        kwargs["until"] = sampling["stops"]
    if "temperature" in sampling:
        kwargs["do_sample"] = sampling["temperature"] != 0
    return kwargs


def sha256(text: str) -> str:
    """Hash a text as the harness does."""
    return hashlib.sha256(text_bytes(text)).hexdigest()
