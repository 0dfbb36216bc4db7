"""The trial store: what was sampled once is never sampled again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

from lm_eval_bayes._util.hashing import (
    canonical_json,
    model_hash,
    prompt_hash,
    sampling_hash,
    text_bytes,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import check_option
from lm_eval_bayes.store.descriptions import TABLES, check_weights, find_ids, put_description
from lm_eval_bayes.store.errors import StoreDamagedError, TrialConflictError, readable
from lm_eval_bayes.store.file import WAIT_S, Mode, StoreFile, Synchronous, open_file
from lm_eval_bayes.store.info import StoreInfo, store_info
from lm_eval_bayes.store.outcomes import GradedTask, check_outcomes, put_outcomes, read_outcomes
from lm_eval_bayes.store.prompt_signals import put_prompt_signals, read_prompt_signals
from lm_eval_bayes.store.prune import PruneReport, prune_trials
from lm_eval_bayes.store.trial import (
    READ,
    Trial,
    TrialKey,
    check_int64,
    decode,
    encode,
    list_conflicts,
)
from lm_eval_bayes.store.trial_table import (
    find_rows,
    insert_trials,
    paused_collector,
)

OnConflict: TypeAlias = Literal["refuse", "keep-first"]
ON_CONFLICT: tuple[OnConflict, ...] = ("refuse", "keep-first")


class TrialStore:
    """Every trial of any number of models and questions, in one SQLite file.

    Made by :meth:`open`. What :meth:`add` was given is on file when it returns: a process
    that is killed loses what it had not added yet, and nothing else. Several processes may
    use one store on one computer; on a network file system each writes its own, and
    :func:`lm_eval_bayes.store.merge.merge` brings them together.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with TrialStore.open(folder.name + "/aime.sqlite") as store:
    ...     key = TrialKey(
    ...         model=store.describe_model({"backend": "vllm", "pretrained": "some/model"}),
    ...         prompt=store.describe_prompt("What is 6 times 7?"),
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
        """Open a store; for writing, create it or bring an older one up to date.

        Parameters
        ----------
        path : path
            The file. Its folder must exist.
        mode : str
            "write", or "read", which never changes what is stored, also where another
            process is writing it.
        synchronous : str
            "NORMAL": no commit is lost when the process dies, the last ones may be when the
            power fails. "FULL": nor then, for a flush to disk at every commit.
        wait_s : float
            Seconds to wait while another process is writing.

        Raises
        ------
        StoreError
            If the path leads to something else, to nothing (for reading), to a damaged
            store, to one of a later release or to one that cannot be written.
        """
        return cls(open_file(path, mode, synchronous, wait_s))

    def __enter__(self) -> TrialStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was added stays."""
        self.file.close()

    @property
    def path(self) -> Path:
        """The file, absolute."""
        return self.file.path

    @property
    def schema(self) -> int:
        """The schema of the file."""
        return self.file.schema

    # What the hashes of a key stand for.

    def describe_model(self, fingerprint: Mapping[str, object]) -> str:
        """Keep a model's fingerprint and return its hash.

        Parameters
        ----------
        fingerprint : mapping
            All that changes the model's distribution, as JSON: backend, pretrained, weights
            (their hash or hub commit), dtype, quantization, tokenizer, chat template, …
        """
        digest = model_hash(fingerprint)
        self._describe("models", [(digest, canonical_json(fingerprint, "fingerprint"))])
        return digest

    def describe_sampling(self, kwargs: Mapping[str, object]) -> str:
        """Keep generation settings, without the seed, and return their hash."""
        digest = sampling_hash(kwargs)
        self._describe("samplings", [(digest, canonical_json(kwargs, "sampling"))])
        return digest

    def describe_prompt(self, text: str) -> str:
        """Keep a prompt, exactly as the model gets it, and return its hash."""
        return self.describe_prompts([text])[0]

    def describe_prompts(self, texts: Iterable[str]) -> list[str]:
        """Keep many prompts in one transaction and return their hashes, in order."""
        prompts = [(prompt_hash(text), text_bytes(text)) for text in texts]
        self._describe("prompts", prompts)
        return [digest for digest, _ in prompts]

    def _describe(self, table: str, described: Sequence[tuple[str, str | bytes]]) -> None:
        with self.file.reading() as connection:
            known = find_ids(connection, table, (digest for digest, _ in described))
        missing = [(digest, text) for digest, text in described if digest not in known]
        if missing:
            with self.file.writing() as connection:
                for digest, text in missing:
                    put_description(connection, table, digest, text)

    def model(self, digest: str) -> dict[str, Any]:
        """Return the fingerprint that a hash stands for."""
        with readable(self.path, "the model"):
            return dict(json.loads(self._described("models", digest)))

    def sampling(self, digest: str) -> dict[str, Any]:
        """Return the generation settings that a hash stands for."""
        with readable(self.path, "the sampling"):
            return dict(json.loads(self._described("samplings", digest)))

    def prompt(self, digest: str) -> str:
        """Return the prompt that a hash stands for."""
        with readable(self.path, "the prompt"):
            return str(self._described("prompts", digest), "utf-8", "surrogatepass")

    def _described(self, table: str, digest: str) -> Any:
        with self.file.reading() as connection:
            statement = f"SELECT description FROM {table} WHERE hash = ?"
            found = connection.execute(statement, (digest,)).fetchone()
        if found is None:
            rule = f"be the hash of a {TABLES[table]} in {self.path}"
            raise InvalidInputError.of("digest", rule, digest)
        return found[0]

    def check_model(self, fingerprint: Mapping[str, object]) -> None:
        """Refuse a model if the store holds trials of other weights under its name.

        Raises
        ------
        OtherWeightsError
            If a fingerprint with the same ``pretrained`` (and ``revision`` and the like) has
            other ``weights``. Where either tells no weights, nothing can be said.
        """
        with self.file.reading() as connection:
            known = connection.execute("SELECT description FROM models ORDER BY id").fetchall()
        with readable(self.path, "a model"):
            models = [json.loads(text) for (text,) in known]
        check_weights(fingerprint, models, self.path)

    # Trials.

    def add(self, trials: Iterable[Trial], conflicts: OnConflict = "refuse") -> int:
        """Store trials: all of them are committed when this returns, or none was stored.

        A trial that is there already, with the same text and seed, is left as it is.

        Parameters
        ----------
        trials : iterable of Trial
            Their keys' hashes must have been described to this store.
        conflicts : str
            What to do about a trial that is there with another text or seed: "refuse", or
            "keep-first" to keep the stored one.

        Returns
        -------
        int
            How many were new.

        Raises
        ------
        TrialConflictError
            If a trial is there with another text or seed.
        InvalidInputError
            If a record breaks a rule; nothing was stored.
        StoreError
            If the file cannot be written; what was committed before is safe.
        """
        conflicts = check_option("conflicts", conflicts, ON_CONFLICT)
        rows = [encode(trial) for trial in trials]
        if not rows:
            return 0
        with self.file.writing() as connection:
            stored, collided = insert_trials(connection, rows, self.path)
            if collided and conflicts == "refuse":
                raise TrialConflictError(
                    f"nothing was stored: {list_conflicts(collided)}", tuple(collided)
                )
        return stored

    def trials(self, key: TrialKey, first: int = 0, last: int | None = None) -> dict[int, Trial]:
        """Return the trials of a key with first <= number < last, by number."""
        return self._trials([key], *_span(first, last))[key]

    def trials_of(
        self, keys: Iterable[TrialKey], n: int | None = None
    ) -> dict[TrialKey, dict[int, Trial]]:
        """Return trials 0..n-1 of many keys at once, all of them without `n`.

        Returns
        -------
        dict
            Every key that was asked for, with its trials by number, in ascending order.
        """
        return self._trials(list(keys), *_span(0, n))

    def numbers_of(
        self, keys: Iterable[TrialKey], n: int | None = None
    ) -> dict[TrialKey, set[int]]:
        """Return which of the trials 0..n-1 are stored, without reading their texts."""
        found: dict[TrialKey, set[int]] = {key: set() for key in keys}
        with self.file.reading() as connection:
            for key, row in find_rows(connection, list(found), "prompt, trial", *_span(0, n)):
                found[key].add(row[1])
        return found

    def _trials(
        self, keys: list[TrialKey], first: int, last: int
    ) -> dict[TrialKey, dict[int, Trial]]:
        found: dict[TrialKey, dict[int, Trial]] = {key: {} for key in keys}
        with self.file.reading() as connection, paused_collector():
            rows = connection.execute("SELECT id, description FROM versions").fetchall()
            with readable(self.path, "a description of versions"):
                versions = {number: json.loads(text) for number, text in rows}
            latest: TrialKey | None = None
            trials: dict[int, Trial] = {}
            for key, row in find_rows(connection, list(found), READ, first, last):
                # Rows of one key follow each other, and hashing a key is dearer than a look at it.
                if key is not latest:
                    latest, trials = key, found[key]
                try:
                    trials[row[1]] = decode(key, versions, row)
                except (TypeError, ValueError, LookupError) as error:
                    raise StoreDamagedError(
                        f"{self.path} is damaged: trial {row[1]} of {key} cannot be read: {error}"
                    ) from error
        return found

    # Signals of prompts.

    def add_prompt_signals(self, model: str, prompt: str, signals: Mapping[str, Any]) -> bool:
        """Store what a model's reading of a prompt measured; the first measurement stays.

        Parameters
        ----------
        model, prompt : str
            Their hashes, described to this store.
        signals : mapping
            Whatever JSON can hold, by name.

        Returns
        -------
        bool
            Whether it was new.
        """
        return put_prompt_signals(self.file, model, prompt, signals, time.time())

    def prompt_signals(self, model: str, prompts: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the signals of those of the prompts that have some, by the prompt's hash."""
        return read_prompt_signals(self.file, model, prompts)

    # Outcomes.

    def add_outcomes(self, tasks: Iterable[GradedTask]) -> int:
        """Store what trials were graded as: all of it is committed when this returns, or nothing.

        A later grading for the same place in the same version of a task, through the same
        filter, replaces an earlier one, also where document or categories changed meanwhile.

        Parameters
        ----------
        tasks : iterable of GradedTask
            Their keys' hashes must have been described to this store; the trials may lie in
            another one, as those of another rank do.

        Returns
        -------
        int
            How many outcomes are new or other than before.

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
            in the order of their place in the task's data.
        """
        return read_outcomes(self.file, task)

    # The store as a whole.

    def info(self) -> StoreInfo:
        """Count what is stored, by model, sampling and prompt."""
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
        """Delete the trials that meet all criteria; by default only count them.

        See :func:`lm_eval_bayes.store.prune.prune_trials`.
        """
        return prune_trials(
            self.file,
            model=model,
            sampling=sampling,
            prompt=prompt,
            trials_from=trials_from,
            dry_run=dry_run,
        )


def _span(first: object, last: object | None) -> tuple[int, int]:
    """Return the smallest and the largest trial number of first <= number < last."""
    end = 2**63 if last is None else check_int64("last", last, 0)
    return check_int64("first", first, 0), end - 1
