"""The store of a run, of which each rank writes a file of its own.

Where it has no trial for a run to read, it says what it has of other models and settings.
"""

from __future__ import annotations

import re
import socket
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from lm_eval_bayes._util.text import join_words, plural
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.runs.model_arguments import (
    SOURCE_OF_TOKENIZER,
    SOURCE_OF_WEIGHTS,
    keyed,
    model_name,
)
from lm_eval_bayes.store.file import WAIT_S, StoreFile
from lm_eval_bayes.store.locations import is_store, network_file_system
from lm_eval_bayes.store.outcomes import GradedTask
from lm_eval_bayes.store.schema import create_tables
from lm_eval_bayes.store.trial import Trial, TrialId, TrialKey, list_first
from lm_eval_bayes.store.trial_store import TrialStore

log = get_logger(__name__)

#: Trials by key and number.
Trials: TypeAlias = dict[TrialKey, dict[int, Trial]]


class StoreSink:
    """Where a recording model looks trials up and adds new ones: a store for each rank.

    Parameters
    ----------
    store : TrialStore
        This rank's store, open for writing.
    others : sequence of Path
        The stores of other ranks, read when trials are looked up.
    name : str or None
        The store's path; None if it is in memory and ends with the run.
    """

    def __init__(self, store: TrialStore, others: Sequence[Path], name: str | None) -> None:
        self.store, self.others, self.name = store, others, name
        self._outcomes_fail = False

    @staticmethod
    def check_path(path: object) -> None:
        """Create the folder of a store, before a model is loaded.

        Raises
        ------
        ModelConfigError
            If `path` is not a path, or its folder cannot be created.
        """
        if not isinstance(path, str) or not path.strip():
            raise ModelConfigError.of("store", "path", "be the path of a file", path)
        folder = Path(path).expanduser().parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            sentence = (
                f"`store` must lie in a folder that can be written; got {path!r}: {error.strerror}"
            )
            raise ModelConfigError(sentence, "path", "store", path) from error

    @classmethod
    def open(cls, path: str | None, rank: int, fingerprint: Mapping[str, object]) -> StoreSink:
        """Open the store of a rank; without a path, one in memory.

        Rank 0 writes `path`, rank r > 0 a file beside it with ``.rank<r>`` in its name. On a
        local file system each rank also reads the stores of the others.

        Raises
        ------
        StoreError
            If a file is not a store, is damaged or cannot be written, or holds trials of other
            weights under the model's name.
        """
        if path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            create_tables(connection)
            file = StoreFile(Path(":memory:"), "write", connection, WAIT_S)
            return cls(TrialStore(file), (), None)
        base = Path(path).expanduser()
        own_path = rank_path(base, rank)
        store = TrialStore.open(own_path)
        try:
            store.check_model(fingerprint)
            shared = network_file_system(own_path) is None
            others = [p for p in rank_paths(base) if p != store.path] if shared else []
            for other in others:
                with TrialStore.open(other, mode="read") as other_store:
                    other_store.check_model(fingerprint)
        except BaseException:
            store.close()
            raise
        return cls(store, others, str(store.path))

    def describe_model(self, fingerprint: Mapping[str, Any]) -> str:
        """Store a model's fingerprint and source, and return its hash."""
        return self.store.describe_model(keyed(fingerprint)[0], source_of(fingerprint))

    def _stores(self) -> Iterator[TrialStore]:
        """Yield this rank's store, then those of the others.

        It is opened again if it was closed, or in a forked process.
        """
        is_open = self.store.file.is_open
        if is_open:
            yield self.store
        for path in self.others if is_open else (self.store.path, *self.others):
            with TrialStore.open(path, mode="read") as store:
                yield store

    def trials_of(self, wanted: Mapping[TrialKey, Collection[int]]) -> Trials:
        """Return the stored trials of some keys; this rank's come before other ranks'.

        A trial that is not what was written is named in a warning and left out, so that it is
        sampled again; :meth:`add` replaces it.
        """
        first = min((min(numbers) for numbers in wanted.values()), default=0)
        last = 1 + max((max(numbers) for numbers in wanted.values()), default=-1)
        damaged: list[TrialId] = []
        stored: Trials = {key: {} for key in wanted}
        for store in self._stores():
            for key, trials in store.trials_of(wanted, last, damaged, first=first).items():
                stored[key] = trials | stored[key]
        lost = [
            id for id in damaged if id.trial in wanted[id.key] and id.trial not in stored[id.key]
        ]
        if lost:
            log.warning(
                "%s: %s damaged and sampled again: %s",
                self.name,
                plural(len(lost), "stored trial is", "stored trials are"),
                list_first(lost),
            )
        return stored

    def numbers_of(self, keys: Iterable[TrialKey]) -> dict[TrialKey, set[int]]:
        """Return which trials of some keys are stored, by any rank."""
        numbers: dict[TrialKey, set[int]] = {key: set() for key in keys}
        for store in self._stores():
            for key, stored in store.numbers_of(numbers).items():
                numbers[key] |= stored
        return numbers

    def add(self, trial: Trial) -> Trial:
        """Store a trial; return it, or the one that another process stored first."""
        if self.store.add([trial]):
            return trial
        number = trial.trial
        return self.store.trials_of([trial.key], number + 1, first=number)[trial.key][number]

    def prompt_signals(self, model: str, prompts: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the signals of prompts, measured by any rank."""
        signals: dict[str, dict[str, Any]] = {}
        for store in self._stores():
            signals = store.prompt_signals(model, prompts) | signals
        return signals

    def add_outcomes(self, graded: GradedTask) -> None:
        """Store the outcomes of trials; an error is logged once and does not end the run."""
        if self._outcomes_fail:
            return
        try:
            self.store.add_outcomes([graded])
        except Exception as error:
            # Not tried again: a locked store would delay every question.
            self._outcomes_fail = True
            log.warning(
                "the outcomes of the trials are not stored (%s: %s); the results of this run "
                "are complete, and running it again will store them",
                type(error).__name__,
                error,
            )


def source_of(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a model was read from, with the name of this computer; empty if unknown.

    Of a server it is its address.
    """
    _, source = keyed(fingerprint)
    is_local = source and "endpoint" not in source
    return {**source, "host": socket.gethostname()} if is_local else source


def rank_path(path: Path, rank: int) -> Path:
    """Return the file that a rank writes.

    Examples
    --------
    >>> rank_path(Path("runs/aime.sqlite"), 0).name, rank_path(Path("runs/aime.sqlite"), 3).name
    ('aime.sqlite', 'aime.rank3.sqlite')
    """
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def rank_paths(path: Path) -> list[Path]:
    """Return the absolute paths of the existing stores of all ranks."""
    of_rank = re.compile(rf"{re.escape(path.stem)}\.rank\d+{re.escape(path.suffix)}")
    candidates = [path, *sorted(p for p in path.parent.glob("*") if of_rank.fullmatch(p.name))]
    return [p for p in (c.resolve() for c in candidates) if p.is_file() and is_store(p)]


#: The most sentences about what a store has.
_SHOWN = 4


def what_is_stored(store: TrialStore, model: str, samplings: Sequence[str]) -> list[str]:
    """Return what a store has in place of the trials that a run did not find in it.

    Parameters
    ----------
    store : TrialStore
        The store.
    model : str
        The hash of the run's model.
    samplings : sequence of str
        The hashes of the settings that were asked for.

    Returns
    -------
    list of str
        A sentence for each other model or setting, the nearest first; empty for an empty store.
    """
    counts = store.trial_counts()
    if not counts:
        return []
    models, settings = store.models(), store.sampling(samplings[0])
    own = models[model]
    name = model_name(own, "")
    ranked: list[tuple[int, str]] = []
    for (other, sampling), n in counts.items():
        fingerprint = models.get(other, {})
        trials = plural(n, "trial")
        if other == model and sampling in samplings:
            ranked.append((0, f"{trials} of this model with these settings, of other prompts"))
        elif other == model:
            differing = join_words(list(_differences(store.sampling(sampling), settings)))
            ranked.append((1, f"{trials} of this model at {differing}"))
        elif own.get("weights") and fingerprint.get("weights") == own["weights"]:
            differing = join_words(list(_differences(keyed(fingerprint)[0], keyed(own)[0])))
            ranked.append((2, f"{trials} of the same weights under {differing}"))
        elif name and model_name(fingerprint, "") == name:
            places = (*SOURCE_OF_WEIGHTS, *SOURCE_OF_TOKENIZER, "commit", "host")
            differing = join_words(list(_differences(fingerprint, own, places)))
            ranked.append((3, f"{trials} of another model of this name, with {differing}"))
    sentences = [sentence for _, sentence in sorted(ranked)]
    more = len(sentences) - _SHOWN
    if more > 0:
        sentences[_SHOWN:] = [f"trials of {more} further models or settings"]
    return sentences


def _differences(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], left_out: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the entries that differ, with the value that was asked for."""
    for name in sorted((stored.keys() | wanted.keys()) - set(left_out)):
        if stored.get(name) != wanted.get(name):
            yield f"{name} {_brief(stored.get(name))} (now {_brief(wanted.get(name))})"


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
