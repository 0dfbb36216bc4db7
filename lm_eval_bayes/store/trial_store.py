"""The trial store, through which runs store trials and outcomes and find them again."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from os import PathLike
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import (
    canonical_json,
    hash_text,
    model_hash,
    sampling_hash,
    text_bytes,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import OtherWeightsError
from lm_eval_bayes.store.file import WAIT_S, Mode, StoreFile, open_file
from lm_eval_bayes.store.info import COUNT_UNGRADED, StoreInfo, read_models, store_info
from lm_eval_bayes.store.outcomes import GradedTask, outcome_records, put_outcomes, read_outcomes
from lm_eval_bayes.store.prune import PruneReport, prune_trials
from lm_eval_bayes.store.schema import (
    MODELS,
    OF_KEY,
    PROMPT_SIGNALS,
    PROMPTS,
    SAMPLINGS,
    SOURCES,
    TRIALS,
    VERSIONS,
    Row,
    Table,
    insert,
    is_described,
    rows,
)
from lm_eval_bayes.store.trial import Trial, TrialId, TrialKey, decode, encode, signals_json

#: The entries of a fingerprint that together name the source of the weights.
SOURCE_OF_WEIGHTS = ("pretrained", "revision", "subfolder", "gguf_file", "peft", "delta")


class TrialStore:
    """The trials of any number of models and questions, in one SQLite file.

    Returned by :meth:`open`. Trials are committed when :meth:`add` returns, so a process that is
    killed loses only those that it had not added. Several processes of one computer may use one
    store. On a network file system each writes its own store, and
    :func:`lm_eval_bayes.store.merge.merge` merges them.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with TrialStore.open(folder.name + "/aime.sqlite") as store:
    ...     key = TrialKey(
    ...         model=store.describe_model({"backend": "vllm", "pretrained": "some/model"}),
    ...         prompt=store.describe_prompts(["What is 6 times 7?"])[0],
    ...         sampling=store.describe_sampling({"temperature": 0.6, "top_p": 0.95}),
    ...     )
    ...     store.add([Trial(key, 0, "It is 42.", seed=7), Trial(key, 1, "41")])
    ...     {i: trial.text for i, trial in store.trials(key).items()}
    2
    {0: 'It is 42.', 1: '41'}
    >>> folder.cleanup()
    """

    def __init__(self, file: StoreFile) -> None:
        self.file = file

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        mode: Mode = "write",
        wait_s: float = WAIT_S,
    ) -> TrialStore:
        """Open a store; for writing, create it if it is missing.

        Parameters
        ----------
        path : path
            The file. Its folder must exist.
        mode : str
            "write", or "read", which never changes the store. Another process may be writing
            it.
        wait_s : float
            Seconds to wait while another process is writing.

        Raises
        ------
        StoreError
            If the file is not a store, missing (for reading), damaged, of another schema, or
            cannot be written.
        """
        return cls(open_file(path, mode, wait_s))

    def __enter__(self) -> TrialStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    @property
    def path(self) -> Path:
        """The file, absolute."""
        return self.file.path

    # Descriptions: what the hashes of a key stand for.

    def describe_model(
        self, fingerprint: Mapping[str, object], source: Mapping[str, object] | None = None
    ) -> str:
        """Store a model's fingerprint and return its hash.

        Parameters
        ----------
        fingerprint : mapping
            Everything that the model's distribution depends on, as JSON: backend, pretrained,
            weights (their hash or hub commit), dtype, quantization, tokenizer, chat template, …
        source : mapping, optional
            Where it was read from, as JSON: path or name, commit, host, … It is recorded and no
            part of the hash; :meth:`model` returns the first one with the fingerprint.
        """
        digest = model_hash(fingerprint)
        self._describe(MODELS, [canonical_json(fingerprint, "fingerprint").encode("ascii")])
        if source:
            record = SOURCES.record([digest, canonical_json(source, "source"), time.time()])
            with self.file.writing() as connection:
                insert(connection, record)
        return digest

    def describe_sampling(self, kwargs: Mapping[str, object]) -> str:
        """Store generation settings, without the seed, and return their hash."""
        self._describe(SAMPLINGS, [canonical_json(kwargs, "sampling").encode("ascii")])
        return sampling_hash(kwargs)

    def describe_prompts(self, texts: Iterable[str]) -> list[str]:
        """Store prompts in one transaction, exactly as the model gets them; return the hashes."""
        prompts = list(texts)
        self._describe(PROMPTS, map(text_bytes, prompts))
        return [hash_text(prompt, "prompt") for prompt in prompts]

    def _describe(self, table: Table, descriptions: Iterable[bytes]) -> None:
        records = [table.record((), (description,)) for description in descriptions]
        with self.file.reading() as connection:
            missing = [r for r in records if not is_described(connection, table.name, r.digest)]
        if missing:
            with self.file.writing() as connection:
                for record in missing:
                    insert(connection, record)

    def model(self, digest: str) -> dict[str, Any]:
        """Return the fingerprint with this hash, with its first source."""
        self._description(MODELS, digest)
        return self.models()[digest]

    def sampling(self, digest: str) -> dict[str, Any]:
        """Return the generation settings with this hash."""
        return dict(json.loads(self._description(SAMPLINGS, digest)))

    def prompt(self, digest: str) -> str:
        """Return the prompt with this hash."""
        return str(self._description(PROMPTS, digest), "utf-8", "surrogatepass")

    def _description(self, table: Table, digest: str) -> bytes:
        with self.file.reading() as connection:
            rows = self.file.rows(connection, table, "WHERE t.hash = ?", (digest,))
            for row in self.file.intact(rows):
                return bytes(row.texts[0])
        rule = f"be the hash of one of the {table.name} of {self.path}"
        raise InvalidInputError.of("digest", "choice", rule, digest)

    def models(self, *, sources: bool = True) -> dict[str, dict[str, Any]]:
        """Return the fingerprints of all models by their hash, the first described first.

        With `sources` the first source of a model is among the entries of its fingerprint.
        """
        return read_models(self.file, sources)

    def check_model(self, fingerprint: Mapping[str, object]) -> None:
        """Refuse a model if the store has trials of other weights under its name.

        Raises
        ------
        OtherWeightsError
            If a stored fingerprint has the same ``pretrained``, ``revision`` and so on, and other
            ``weights``. A fingerprint without ``weights`` is not compared.
        """
        given = fingerprint.get("weights")
        for model in self.models().values() if fingerprint.get("pretrained") and given else ():
            stored = model.get("weights")
            is_same_name = all(fingerprint.get(n) == model.get(n) for n in SOURCE_OF_WEIGHTS)
            # Identities of two kinds, such as a commit and a hash, cannot be compared.
            is_same_kind = str(given).partition(":")[0] == str(stored).partition(":")[0]
            if is_same_name and is_same_kind and stored != given:
                raise OtherWeightsError(
                    f"{self.path} has trials of other weights under the name "
                    f"{fingerprint['pretrained']}: {stored} is stored, {given} given; use "
                    "another store, or give the model another name"
                )

    def trial_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of trials by the hashes of model and sampling."""
        with self.file.reading() as connection:
            rows = connection.execute(
                "SELECT m.hash, s.hash, n FROM (SELECT model, sampling, count(*) AS n FROM trials "
                "GROUP BY model, sampling) JOIN models AS m ON m.id = model "
                "JOIN samplings AS s ON s.id = sampling"
            ).fetchall()
        return {(model, sampling): n for model, sampling, n in rows}

    def prompts_of(self, model: str, sampling: str) -> list[str]:
        """Return the hashes of the prompts of trials, in the order in which they were described."""
        statement = (
            "SELECT DISTINCT p.hash FROM trials AS t JOIN prompts AS p ON p.id = t.prompt WHERE "
            "t.model = (SELECT id FROM models WHERE hash = ?) AND "
            "t.sampling = (SELECT id FROM samplings WHERE hash = ?) ORDER BY p.id"
        )
        with self.file.reading() as connection:
            return [digest for (digest,) in connection.execute(statement, (model, sampling))]

    # Trials.

    def add(self, trials: Iterable[Trial]) -> int:
        """Store trials in one transaction, which is committed when this returns.

        A trial that is stored already is not changed, whatever its text and seed; one that is
        damaged is replaced.

        Parameters
        ----------
        trials : iterable of Trial
            The hashes of their keys must have a description in this store.

        Returns
        -------
        int
            The number of new trials, and of those that took the place of a damaged one.

        Raises
        ------
        InvalidInputError
            If a record breaks a rule; nothing was stored.
        StoreError
            If the file cannot be written; what was committed before is safe.
        """
        records = [TRIALS.record(values, [text]) for values, text in map(encode, trials)]
        if not records:
            return 0
        with self.file.writing() as connection:
            return sum(put_trial(connection, r, self.file.dictionaries) is None for r in records)

    def trials(self, key: TrialKey) -> dict[int, Trial]:
        """Return the trials of a key by number, see :meth:`trials_of`."""
        return self.trials_of([key])[key]

    def trials_of(
        self,
        keys: Iterable[TrialKey],
        n: int | None = None,
        damaged: list[TrialId] | None = None,
        *,
        first: int = 0,
    ) -> dict[TrialKey, dict[int, Trial]]:
        """Return trials first..n-1 of many keys, or all from `first` on if `n` is None.

        Every trial is compared with the hash that it was written with.

        Parameters
        ----------
        keys : iterable of TrialKey
            The keys.
        n : int, optional
            One more than the last trial's number.
        damaged : list, optional
            Gets the trials that are not what was written, which are left out then.
        first : int
            The first trial's number.

        Returns
        -------
        dict
            For each of the keys, its trials by number, in ascending order.

        Raises
        ------
        StoreDamagedError
            If the file is damaged, or a trial is not what was written and `damaged` is None.
        """
        trials_by_key: dict[TrialKey, dict[int, Trial]] = {}
        last = 2**63 - 1 if n is None else n - 1
        where = f"WHERE {OF_KEY} AND t.trial BETWEEN ? AND ? ORDER BY t.trial"
        with self.file.reading() as connection:
            for key in keys:
                trials = trials_by_key[key] = {}
                rows = self.file.rows(connection, TRIALS, where, (*astuple(key), first, last))
                for row in rows if damaged is not None else self.file.intact(rows):
                    number = row.values[3]
                    if damaged is None or row.is_intact():
                        trials[number] = decode(key, row.values, row.texts[0])
                    else:
                        damaged.append(TrialId(key, number))
        return trials_by_key

    def numbers_of(self, keys: Iterable[TrialKey]) -> dict[TrialKey, set[int]]:
        """Return the numbers of the trials that are stored, without reading their texts."""
        statement = f"SELECT t.trial FROM trials AS t WHERE {OF_KEY}"
        with self.file.reading() as connection:
            return {
                key: {number for (number,) in connection.execute(statement, astuple(key))}
                for key in keys
            }

    # Signals of prompts.

    def add_prompt_signals(self, model: str, prompt: str, signals: Mapping[str, Any]) -> bool:
        """Store what a model's forward pass over a prompt measured; the first measurement stays.

        Parameters
        ----------
        model, prompt : str
            Their hashes, which must have a description in this store.
        signals : mapping
            JSON values by name.

        Returns
        -------
        bool
            Whether they were stored.
        """
        values = (model, prompt, time.time(), signals_json("signals", signals))
        with self.file.writing() as connection:
            return insert(connection, PROMPT_SIGNALS.record(values))

    def prompt_signals(self, model: str, prompts: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the signals of those prompts that have some, by the prompt's hash."""
        signals: dict[str, dict[str, Any]] = {}
        where = "WHERE model_.hash = ? AND prompt_.hash = ?"
        with self.file.reading() as connection:
            for prompt in prompts:
                rows = self.file.rows(connection, PROMPT_SIGNALS, where, (model, prompt))
                for row in self.file.intact(rows):
                    signals[prompt] = dict(json.loads(row.values[3]))
        return signals

    # Outcomes.

    def add_outcomes(self, tasks: Iterable[GradedTask]) -> None:
        """Store graded outcomes in one transaction, which is committed when this returns.

        A later outcome of the same trial for the same doc_id, version and filter of a task replaces
        an earlier one, even if document or categories are different.

        Parameters
        ----------
        tasks : iterable of GradedTask
            The hashes of their keys must have a description in this store. The trials may be in
            the store of another rank.

        Raises
        ------
        InvalidInputError, StoreError
            If a record breaks a rule, or the file cannot be written; nothing was stored.
        """
        put_outcomes(self.file, outcome_records(tasks, time.time()))

    def outcomes_of(self, task: str | None = None) -> tuple[GradedTask, ...]:
        """Return what was graded: of the task of this name, or of all tasks.

        Returns
        -------
        tuple of GradedTask
            One for each version, filter and number of categories of a task, with its questions
            by doc_id; filters in the order in which they were first recorded.
        """
        return read_outcomes(self.file, task)

    # The entire store.

    def n_ungraded(self) -> int:
        """Return how many trials no task graded, as of a run that was stopped."""
        with self.file.reading() as connection:
            return int(connection.execute(COUNT_UNGRADED).fetchone()[0])

    def info(self) -> StoreInfo:
        """Count the contents of the store by model, sampling and task."""
        return store_info(self.file)

    def prune(
        self,
        *,
        model: str | None = None,
        sampling: str | None = None,
        prompt: str | None = None,
        trials_from: int | None = None,
        dry_run: bool = True,
    ) -> PruneReport:
        """Delete the trials that meet all criteria, and what only they refer to.

        A dry run does the same in a transaction that is rolled back, so its counts are exact.

        Parameters
        ----------
        model, sampling, prompt : str, optional
            Hashes; trials of others stay.
        trials_from : int, optional
            Trials with a smaller number stay.
        dry_run : bool
            Only count.

        Raises
        ------
        InvalidInputError
            If there is no criterion, or a hash is not stored.
        """
        hashes = {"model": model, "sampling": sampling, "prompt": prompt}
        return prune_trials(self.file, hashes, trials_from, dry_run)


def put_trial(
    connection: sqlite3.Connection, record: Row, dictionaries: Mapping[int, bytes]
) -> str | None:
    """Insert a trial unless it is stored; a stored one that is damaged is replaced.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction that writes.
    record : Row
        Of the table of trials.
    dictionaries : mapping
        With which stored texts are read.

    Returns
    -------
    str or None
        None if it was inserted; else how it differs from the stored trial: "text", "seed",
        "text and seed" or "". Times, signals and versions are measurements of the draw and may
        differ.
    """
    versions = VERSIONS.record((), [record.values[4].encode("ascii")])
    if not is_described(connection, "versions", versions.digest):
        insert(connection, versions)
    if insert(connection, record):
        return None
    where, row_id = f"WHERE {OF_KEY} AND t.trial = ?", record.values[:4]
    (stored,) = rows(connection, TRIALS, dictionaries, where, row_id)
    if stored.is_intact():
        pairs = {"text": (record.texts, stored.texts), "seed": (record.values[5], stored.values[5])}
        return " and ".join(name for name, (new, old) in pairs.items() if new != old)
    connection.execute(f"DELETE FROM trials AS t {where}", row_id)
    insert(connection, record)
    return None
