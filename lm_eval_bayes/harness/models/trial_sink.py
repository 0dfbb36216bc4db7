"""Where trials are kept: in a store, or for one run in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from lm_eval_bayes._util.hashing import model_hash, prompt_hash, sampling_hash
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.store.graded import GradedTask
from lm_eval_bayes.store.locations import is_store, network_file_system
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

log = get_logger(__name__)

Trials = dict[TrialKey, dict[int, Trial]]


class Keeper(Protocol):
    """What recording needs of a place to keep trials."""

    name: str | None
    """The store's path, if there is one."""

    def describe_model(self, fingerprint: Mapping[str, object]) -> str:
        """Return the hash of a model's fingerprint."""

    def describe_sampling(self, kwargs: Mapping[str, object]) -> str:
        """Return the hash of generation settings."""

    def describe_prompts(self, texts: Iterable[str]) -> list[str]:
        """Return the hashes of prompts."""

    def trials_of(self, wanted: Mapping[TrialKey, Iterable[int]]) -> Trials:
        """Return the kept trials of some keys."""

    def keep(self, trial: Trial) -> Trial:
        """Keep a trial; return it, or the one that was there first."""

    def prompt_signals(self, model: str, prompts: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return what was measured of prompts."""

    def keep_prompt_signals(self, model: str, prompt: str, signals: Mapping[str, Any]) -> None:
        """Keep what was measured of a prompt."""


class MemoryKeeper:
    """Keeps nothing beyond the call that made it, except the signals of prompts."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._signals: dict[tuple[str, str], dict[str, Any]] = {}

    def describe_model(self, fingerprint: Mapping[str, object]) -> str:
        """Return the hash of a model's fingerprint."""
        return model_hash(fingerprint)

    def describe_sampling(self, kwargs: Mapping[str, object]) -> str:
        """Return the hash of generation settings."""
        return sampling_hash(kwargs)

    def describe_prompts(self, texts: Iterable[str]) -> list[str]:
        """Return the hashes of prompts."""
        return [prompt_hash(text) for text in texts]

    def trials_of(self, wanted: Mapping[TrialKey, Iterable[int]]) -> Trials:
        """Return nothing: every run samples anew."""
        return {}

    def keep(self, trial: Trial) -> Trial:
        """Return the trial."""
        return trial

    def prompt_signals(self, model: str, prompts: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return what this run measured of prompts."""
        return {p: self._signals[model, p] for p in prompts if (model, p) in self._signals}

    def keep_prompt_signals(self, model: str, prompt: str, signals: Mapping[str, Any]) -> None:
        """Keep what was measured of a prompt."""
        self._signals.setdefault((model, prompt), dict(signals))


class StoreKeeper:
    """Keeps trials in a store of its own, and reads those of the other ranks as well.

    Parameters
    ----------
    store : TrialStore
        The rank's own, open for writing.
    others : sequence of Path
        The stores of other ranks, read when trials are looked up.
    """

    def __init__(self, store: TrialStore, others: list[Path]) -> None:
        self.store, self.others = store, others
        self.name: str | None = str(store.path)
        self._outcomes_fail = False

    @staticmethod
    def check_path(path: object) -> None:
        """Make a store's folder, or refuse, before anything is loaded, one that cannot be.

        Raises
        ------
        ModelConfigError
            If it is no path.
        """
        if not isinstance(path, str) or not path.strip():
            raise ModelConfigError(f"`store` must be the path of a file; got {path!r}")
        folder = Path(path).expanduser().parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelConfigError(
                f"`store` must lie in a folder that can be written; got {path!r} ({error.strerror})"
            ) from error

    @classmethod
    def open(
        cls, path: str, rank: int, synchronous: Any, fingerprint: Mapping[str, object]
    ) -> StoreKeeper:
        """Open the store of a rank.

        Rank 0 writes the file that was named, rank r > 0 one beside it with ``.rank<r>`` in
        its name. Where the file system is local each also reads what the others have stored.

        Raises
        ------
        StoreError
            If a file is no store, is damaged or cannot be written, or holds trials of other
            weights under the model's name.
        """
        named = Path(path).expanduser()
        mine = rank_path(named, rank)
        store = TrialStore.open(mine, synchronous=synchronous)
        try:
            store.check_model(fingerprint)
            shared = network_file_system(mine) is None
            others = [p for p in rank_paths(named) if p != store.path] if shared else []
            for other in others:
                with TrialStore.open(other, mode="read") as theirs:
                    theirs.check_model(fingerprint)
        except BaseException:
            store.close()
            raise
        return cls(store, others)

    def describe_model(self, fingerprint: Mapping[str, object]) -> str:
        """Keep a model's fingerprint and return its hash."""
        return self.store.describe_model(fingerprint)

    def describe_sampling(self, kwargs: Mapping[str, object]) -> str:
        """Keep generation settings and return their hash."""
        return self.store.describe_sampling(kwargs)

    def describe_prompts(self, texts: Iterable[str]) -> list[str]:
        """Keep prompts and return their hashes."""
        return self.store.describe_prompts(texts)

    def trials_of(self, wanted: Mapping[TrialKey, Iterable[int]]) -> Trials:
        """Return the stored trials of some keys: this rank's, then the other ranks'."""
        last = 1 + max((max(numbers) for numbers in wanted.values()), default=-1)
        found = self.store.trials_of(wanted, last)
        for path in self.others:
            with TrialStore.open(path, mode="read") as store:
                for key, trials in store.trials_of(wanted, last).items():
                    found[key] = {**trials, **found[key]}
        return found

    def keep(self, trial: Trial) -> Trial:
        """Store a trial; return it, or the one that another process stored first."""
        if self.store.add([trial], conflicts="keep-first"):
            return trial
        return self.store.trials(trial.key, trial.trial, trial.trial + 1)[trial.trial]

    def prompt_signals(self, model: str, prompts: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return what was measured of prompts, by any rank."""
        prompts = list(prompts)
        found = self.store.prompt_signals(model, prompts)
        for path in self.others:
            with TrialStore.open(path, mode="read") as store:
                found = {**store.prompt_signals(model, prompts), **found}
        return found

    def keep_prompt_signals(self, model: str, prompt: str, signals: Mapping[str, Any]) -> None:
        """Store what was measured of a prompt."""
        self.store.add_prompt_signals(model, prompt, signals)

    def keep_outcomes(self, graded: GradedTask) -> None:
        """Store what trials were graded as, if that can be done: no run shall end over it."""
        if self._outcomes_fail:
            return
        try:
            self.store.add_outcomes([graded])
        except Exception as error:
            # Said once, and not tried again: a locked store would hold up every question.
            self._outcomes_fail = True
            log.warning(
                "what the trials were graded as is not stored (%s: %s); the results of this run "
                "are complete all the same, and running it again will store it",
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
    """Return the stores of all ranks that there are, absolute."""
    beside = sorted(
        other
        for other in path.parent.glob("*")
        if other.stem.startswith(f"{path.stem}.rank")
        and other.stem[len(path.stem) + 5 :].isdigit()
        and other.suffix == path.suffix
    )
    candidates = [path, *beside]
    return [p for p in (c.resolve() for c in candidates) if p.is_file() and is_store(p)]
