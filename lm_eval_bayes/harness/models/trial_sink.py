"""Sinks of trials: a store, or nothing beyond the run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from lm_eval_bayes._util.hashing import model_hash, prompt_hash, sampling_hash
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.stored_models import Fingerprint, find_model, source_of
from lm_eval_bayes.runs.model_arguments import keyed
from lm_eval_bayes.store.locations import is_store, network_file_system
from lm_eval_bayes.store.outcomes import GradedTask
from lm_eval_bayes.store.trial import Trial, TrialId, TrialKey, list_first
from lm_eval_bayes.store.trial_store import TrialStore

log = get_logger(__name__)

#: Trials by key and number.
Trials: TypeAlias = dict[TrialKey, dict[int, Trial]]


class TrialSink:
    """Where a recording model looks trials up and adds new ones; this one has no store.

    Every call samples anew, and signals of prompts last for the run.

    Attributes
    ----------
    name : str or None
        The store's path; None without a store.
    """

    name: str | None = None

    def __init__(self) -> None:
        self._signals: dict[tuple[str, str], dict[str, Any]] = {}

    def describe_model(self, fingerprint: Fingerprint) -> str:
        """Return the hash of a model's fingerprint."""
        return model_hash(keyed(fingerprint)[0])

    def describe_sampling(self, kwargs: Mapping[str, object]) -> str:
        """Return the hash of generation settings."""
        return sampling_hash(kwargs)

    def describe_prompts(self, texts: Iterable[str]) -> list[str]:
        """Return the hashes of prompts."""
        return [prompt_hash(text) for text in texts]

    def trials_of(self, wanted: Mapping[TrialKey, Collection[int]]) -> Trials:
        """Return the stored trials of some keys: none."""
        return {}

    def numbers_of(self, keys: Iterable[TrialKey]) -> dict[TrialKey, set[int]]:
        """Return which trials of some keys are stored: none."""
        return {key: set() for key in keys}

    def add(self, trial: Trial) -> Trial:
        """Add a trial; return it, or the stored one of the same key and number."""
        return trial

    def prompt_signals(self, model: str, prompts: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the signals of prompts that this run has measured."""
        return {p: self._signals[model, p] for p in prompts if (model, p) in self._signals}

    def add_prompt_signals(self, model: str, prompt: str, signals: Mapping[str, Any]) -> None:
        """Add the signals of a prompt for this run."""
        self._signals.setdefault((model, prompt), dict(signals))


class StoreSink(TrialSink):
    """A sink with one store for each rank, which also reads the stores of the other ranks.

    Parameters
    ----------
    store : TrialStore
        This rank's store, open for writing.
    others : list of Path
        The stores of other ranks, read when trials are looked up.
    """

    def __init__(self, store: TrialStore, others: list[Path]) -> None:
        self.store, self.others = store, others
        self.name = str(store.path)
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
    def open(
        cls, path: str, rank: int, synchronous: Any, fingerprint: Mapping[str, object]
    ) -> StoreSink:
        """Open the store of a rank.

        Rank 0 writes `path`, rank r > 0 a file beside it with ``.rank<r>`` in its name. On a
        local file system each rank also reads the stores of the others.

        Raises
        ------
        StoreError
            If a file is not a store, is damaged or cannot be written, or holds trials of other
            weights under the model's name.
        """
        base = Path(path).expanduser()
        own_path = rank_path(base, rank)
        store = TrialStore.open(own_path, synchronous=synchronous)
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
        return cls(store, others)

    def describe_model(self, fingerprint: Fingerprint) -> str:
        """Store a model's fingerprint and source, and return its hash.

        A fingerprint of the same model that is stored for any rank is kept, see
        :func:`~lm_eval_bayes.harness.models.stored_models.find_model`.
        """
        stored = self.store.models(sources=False)
        for store in self._other_stores():
            stored = store.models(sources=False) | stored
        known = find_model(fingerprint, stored)
        model = stored[known] if known is not None else keyed(fingerprint)[0]
        return self.store.describe_model(model, source_of(fingerprint))

    @contextmanager
    def _readable(self) -> Iterator[TrialStore]:
        """Yield this rank's store, opened again if it was closed or the process is a forked one."""
        if self.store.file.is_open:
            yield self.store
            return
        with TrialStore.open(self.store.path, mode="read") as store:
            yield store

    def _other_stores(self) -> Iterator[TrialStore]:
        for path in self.others:
            with TrialStore.open(path, mode="read") as store:
                yield store

    def describe_sampling(self, kwargs: Mapping[str, object]) -> str:
        """Store generation settings and return their hash."""
        return self.store.describe_sampling(kwargs)

    def describe_prompts(self, texts: Iterable[str]) -> list[str]:
        """Store prompts and return their hashes."""
        return self.store.describe_prompts(texts)

    def trials_of(self, wanted: Mapping[TrialKey, Collection[int]]) -> Trials:
        """Return the stored trials of some keys; this rank's come before other ranks'.

        A trial that is not what was written is named in a warning and left out, so that it is
        sampled again; :meth:`add` replaces it.
        """
        first = min((min(numbers) for numbers in wanted.values()), default=0)
        last = 1 + max((max(numbers) for numbers in wanted.values()), default=-1)
        damaged: list[TrialId] = []
        with self._readable() as own:
            stored = own.trials_of(wanted, last, damaged, first=first)
        for store in self._other_stores():
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
        keys = list(keys)
        numbers = self.store.numbers_of(keys)
        for store in self._other_stores():
            for key, found in store.numbers_of(keys).items():
                numbers[key] |= found
        return numbers

    def add(self, trial: Trial) -> Trial:
        """Store a trial; return it, or the one that another process stored first."""
        if self.store.add([trial]):
            return trial
        number = trial.trial
        return self.store.trials_of([trial.key], number + 1, first=number)[trial.key][number]

    def prompt_signals(self, model: str, prompts: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the signals of prompts, measured by any rank."""
        prompts = list(prompts)
        signals = self.store.prompt_signals(model, prompts)
        for store in self._other_stores():
            signals = store.prompt_signals(model, prompts) | signals
        return signals

    def add_prompt_signals(self, model: str, prompt: str, signals: Mapping[str, Any]) -> None:
        """Store the signals of a prompt."""
        self.store.add_prompt_signals(model, prompt, signals)

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
