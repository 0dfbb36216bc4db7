"""The trial store, through which runs store trials and outcomes and find them again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import (
    canonical_json,
    model_hash,
    prompt_hash,
    sampling_hash,
    text_bytes,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.compact import CompactReport, compact_store
from lm_eval_bayes.store.errors import StoreDamagedError, readable
from lm_eval_bayes.store.file import WAIT_S, Mode, StoreFile, Synchronous, chunks, marks, open_file
from lm_eval_bayes.store.info import StoreInfo, store_info
from lm_eval_bayes.store.outcomes import GradedTask, check_outcomes, put_outcomes, read_outcomes
from lm_eval_bayes.store.prune import PruneReport, prune_trials
from lm_eval_bayes.store.sources import (
    AliasRow,
    alias_row,
    alias_rows,
    first_sources,
    put_alias,
    put_source,
    source_row,
    source_rows,
)
from lm_eval_bayes.store.tables import (
    TABLES,
    DescriptionRow,
    PromptSignalsRow,
    check_weights,
    description_rows,
    find_ids,
    find_rows,
    insert_prompt_signals,
    insert_trials,
    paused_collector,
    prompt_signals_row,
    prompt_signals_rows,
    put_description,
    require_id,
    trial_row,
)
from lm_eval_bayes.store.trial import (
    CHECKED,
    Trial,
    TrialId,
    TrialKey,
    check_text,
    decode,
    encode,
)


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
        synchronous: Synchronous = "NORMAL",
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
        synchronous : str
            "NORMAL": every commit survives a kill of the process; the last ones may be lost in
            a power failure. "FULL": they survive that too, with a flush to disk per commit.
        wait_s : float
            Seconds to wait while another process is writing.

        Raises
        ------
        StoreError
            If the file is not a store, missing (for reading), damaged, of another schema, or
            cannot be written.
        """
        return cls(open_file(path, mode, synchronous, wait_s))

    def __enter__(self) -> TrialStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def __fspath__(self) -> str:
        return str(self.path)

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
        self._describe("models", [(digest, canonical_json(fingerprint, "fingerprint"))])
        if source:
            self.add_source(digest, source)
        return digest

    def add_source(self, model: str, source: Mapping[str, object]) -> None:
        """Record where a model was read from, unless that is known; `model` is its hash."""
        row = source_row(model, source, time.time())
        with self.file.reading() as connection:
            known = any((old.model, old.description) == row[:2] for old in source_rows(connection))
        if not known:
            with self.file.writing() as connection:
                require_id(connection, "models", model, self.path)
                put_source(connection, row)

    def add_alias(self, name: str, model: str) -> None:
        """Give a model a further name, in place of another model of that name.

        Parameters
        ----------
        name : str
            A name that a run may give a model, or the hash of another model.
        model : str
            The hash of the model whose trials such a run finds.

        Raises
        ------
        InvalidInputError
            If no model of this store has the hash.
        """
        if check_text("name", name) in (None, ""):
            raise InvalidInputError.of("name", "format", "be a name or a hash", name)
        with self.file.writing() as connection:
            require_id(connection, "models", model, self.path)
            put_alias(connection, alias_row(name, model), replace=True)

    def aliases(self) -> dict[str, str]:
        """Return the hash of the model that each further name stands for."""
        with self.file.reading() as connection:
            rows = list(alias_rows(connection))
        for row in rows:
            self._check(row)
        return {row.name: row.model for row in rows}

    def describe_sampling(self, kwargs: Mapping[str, object]) -> str:
        """Store generation settings, without the seed, and return their hash."""
        digest = sampling_hash(kwargs)
        self._describe("samplings", [(digest, canonical_json(kwargs, "sampling"))])
        return digest

    def describe_prompts(self, texts: Iterable[str]) -> list[str]:
        """Store prompts in one transaction, exactly as the model gets them; return the hashes."""
        prompts = [(prompt_hash(text), text_bytes(text)) for text in texts]
        self._describe("prompts", prompts)
        return [digest for digest, _ in prompts]

    def _describe(self, table: str, described: Sequence[tuple[str, str | bytes]]) -> None:
        with self.file.reading() as connection:
            stored = find_ids(connection, table, (digest for digest, _ in described))
        missing = [(digest, text) for digest, text in described if digest not in stored]
        if missing:
            with self.file.writing() as connection:
                for digest, text in missing:
                    put_description(connection, table, digest, text)

    def model(self, digest: str) -> dict[str, Any]:
        """Return the fingerprint with this hash, with its first source."""
        fingerprint = json.loads(self._described("models", digest))
        with self.file.reading() as connection:
            sources = first_sources(connection)
        return {**sources.get(digest, {}), **fingerprint}

    def sampling(self, digest: str) -> dict[str, Any]:
        """Return the generation settings with this hash."""
        return dict(json.loads(self._described("samplings", digest)))

    def prompt(self, digest: str) -> str:
        """Return the prompt with this hash."""
        return str(self._described("prompts", digest), "utf-8", "surrogatepass")

    def _described(self, table: str, digest: str) -> Any:
        with self.file.reading() as connection:
            statement = f"SELECT id, hash, description FROM {table} WHERE hash = ?"
            found = connection.execute(statement, (digest,)).fetchone()
        if found is None:
            rule = f"be the hash of a {TABLES[table]} in {self.path}"
            raise InvalidInputError.of("digest", "choice", rule, digest)
        row = DescriptionRow(table, *found)
        self._check(row)
        return row.description

    def check_model(self, fingerprint: Mapping[str, object]) -> None:
        """Refuse a model if the store has trials of other weights under its name.

        Raises
        ------
        OtherWeightsError
            If a stored fingerprint has the same ``pretrained``, ``revision`` and so on, and other
            ``weights``. A fingerprint without ``weights`` is not compared.
        """
        check_weights(fingerprint, self.models().values(), self.path)

    def models(self, *, sources: bool = True) -> dict[str, dict[str, Any]]:
        """Return the fingerprints of all models by their hash, the first described first.

        With `sources` the first source of a model is among the entries of its fingerprint.
        """
        with self.file.reading() as connection:
            rows = list(description_rows(connection, "models"))
            first = first_sources(connection) if sources else {}
        for row in rows:
            self._check(row)
        return {
            row.digest: {**first.get(row.digest, {}), **json.loads(row.description)} for row in rows
        }

    def trial_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of trials by the hashes of model and sampling."""
        with self.file.reading() as connection:
            rows = connection.execute(
                "SELECT m.hash, s.hash, n FROM (SELECT model, sampling, count(*) AS n FROM trials "
                "GROUP BY model, sampling) JOIN models AS m ON m.id = model "
                "JOIN samplings AS s ON s.id = sampling"
            ).fetchall()
        return {(model, sampling): n for model, sampling, n in rows}

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
        rows = [encode(trial) for trial in trials]
        if not rows:
            return 0
        with self.file.writing() as connection:
            inserted = insert_trials(connection, rows, self.path, self.file.texts)
            return sum(difference is None for _, difference in inserted)

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
        trials_by_key: dict[TrialKey, dict[int, Trial]] = {key: {} for key in keys}
        with (
            self.file.reading() as connection,
            paused_collector(),
            readable(self.path, "a trial"),
        ):
            latest: TrialKey | None = None
            trials: dict[int, Trial] = {}
            for key, columns in find_rows(connection, list(trials_by_key), CHECKED, first, n):
                # Rows are grouped by key, and comparing identities is faster than hashing the key.
                if key is not latest:
                    latest, trials = key, trials_by_key[key]
                row = trial_row(key, columns, self.file.texts)
                if row.is_intact():
                    trials[row.trial] = decode(row)
                elif damaged is not None:
                    damaged.append(TrialId(key, row.trial))
                else:
                    raise StoreDamagedError(
                        f"{self.path} is damaged: {row} does not match its hash "
                        "(`lm-eval-bayes store verify` lists all such trials)"
                    )
        return trials_by_key

    def numbers_of(self, keys: Iterable[TrialKey]) -> dict[TrialKey, set[int]]:
        """Return the numbers of the trials that are stored, without reading their texts."""
        numbers: dict[TrialKey, set[int]] = {key: set() for key in keys}
        with self.file.reading() as connection, readable(self.path, "a trial"):
            for key, (number,) in find_rows(connection, list(numbers), "trial"):
                numbers[key].add(number)
        return numbers

    def _check(self, row: DescriptionRow | PromptSignalsRow | AliasRow) -> None:
        if not row.is_intact():
            raise StoreDamagedError(
                f"{self.path} is damaged: {row} cannot be read: it does not match its hash"
            )

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
        row = prompt_signals_row(model, prompt, signals, time.time())
        with self.file.writing() as connection:
            return insert_prompt_signals(connection, row, self.path)

    def prompt_signals(self, model: str, prompts: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the signals of those prompts that have some, by the prompt's hash."""
        signals: dict[str, dict[str, Any]] = {}
        with self.file.reading() as connection:
            for chunk in chunks(list(prompts)):
                where = f"WHERE m.hash = ? AND p.hash IN ({marks(chunk)})"
                rows = prompt_signals_rows(connection, where, (model, *chunk))
                for row in rows:
                    self._check(row)
                    signals[row.prompt] = dict(json.loads(row.signals))
        return signals

    # Outcomes.

    def add_outcomes(self, tasks: Iterable[GradedTask]) -> int:
        """Store graded outcomes in one transaction, which is committed when this returns.

        A later outcome of the same trial for the same doc_id, version and filter of a task replaces
        an earlier one, even if document or categories are different.

        Parameters
        ----------
        tasks : iterable of GradedTask
            The hashes of their keys must have a description in this store. The trials may be in
            the store of another rank.

        Returns
        -------
        int
            The number of outcomes that are new or changed.

        Raises
        ------
        InvalidInputError, StoreError
            If a record breaks a rule, or the file cannot be written; nothing was stored.
        """
        checked = check_outcomes(tasks)
        if not checked:
            return 0
        with self.file.writing() as connection:
            return put_outcomes(connection, checked, time.time(), self.path)

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

    def info(self) -> StoreInfo:
        """Count the contents of the store by model, sampling and prompt."""
        return store_info(self.file)

    def compact(self) -> CompactReport:
        """Compress all texts anew, with a dictionary of them, and return unused space.

        Raises
        ------
        StoreError
            If the store cannot be written; then it is as before.
        """
        return compact_store(self.file)

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
        hashes = {"models": model, "samplings": sampling, "prompts": prompt}
        return prune_trials(self.file, hashes, trials_from, dry_run)
