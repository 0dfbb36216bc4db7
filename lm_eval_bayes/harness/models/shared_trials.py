"""`trials=auto`: several processes share the trials of one run, through a folder.

The trials of a run, in trial order, are cut into blocks, and each process claims the first block
that is free (:mod:`~lm_eval_bayes.store.claims`). A process that finds none waits for the trials of
the others, and takes over the blocks of those that died, so that it ends with all trials of all
questions. The processes use one store, on one computer, or have a store each and exchange their
trials through logs (:mod:`~lm_eval_bayes.store.trial_log`).
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from lm_eval_bayes._util.hashing import hash_json
from lm_eval_bayes._util.text import format_duration, plural
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import RequestStream, TrialRequest
from lm_eval_bayes.harness.models.trial_sink import StoreSink
from lm_eval_bayes.store.claims import LEASE_S, Claims, check_lease, place_of
from lm_eval_bayes.store.locations import network_file_system
from lm_eval_bayes.store.trial import Trial, TrialId, TrialKey, list_first
from lm_eval_bayes.store.trial_log import TrialLog

if TYPE_CHECKING:
    from lm_eval_bayes.harness.models.trials import RecordingMixin

log = get_logger(__name__)

#: A run has about so many blocks, of at most so many trials: a claim takes a few writes, and what a
#: process has claimed and not begun at the end is waited for.
_BLOCKS, _LARGEST_BLOCK = 256, 64
#: A backend that takes lists gets at least so many trials, or one of every question.
_LIST = 64
#: Seconds between two looks at what other processes did, at most.
_LONGEST_LOOK_S = 5.0
#: Seconds of waiting until the log says for whom, doubled each time, and at most.
_FIRST_MESSAGE_S, _LONGEST_MESSAGE_S = 60.0, 3600.0
#: A process that has not looked for so many seconds, as one that was stopped, watches anew.
_LONGEST_GAP_S = 60.0
#: That many of the processes that are waited for are named.
_NAMED = 4


@dataclass(frozen=True)
class Sharing:
    """How the processes of a run share its trials.

    Attributes
    ----------
    folder : Path
        The folder of claims.
    lease_s : float
        Seconds without a heartbeat after which the work of a process is done by others.
    exchanges : bool
        Whether each process has a store of its own, so that trials are exchanged through logs.
    stalled_s : float
        Seconds without a trial of a process that others wait for, after which they do its work
        although it lives.
    """

    folder: Path
    lease_s: float
    exchanges: bool
    stalled_s: float = math.inf

    @classmethod
    def parse(
        cls, trials: object, store: object, claims: object, lease: object, stalled_after: object
    ) -> Sharing | None:
        """Read the model arguments; None unless ``trials=auto``.

        Raises
        ------
        ModelConfigError
            If one of them breaks its rule.
        """
        if trials != "auto":
            given = {"claims": claims, "lease": lease, "stalled_after": stalled_after}
            for name, value in given.items():
                if value is not None:
                    raise ModelConfigError(f"`{name}` needs trials=auto; got trials={trials}")
            return None
        if not isinstance(store, str) or not store.strip():
            raise ModelConfigError("trials=auto needs a store: --model trials with store=FILE")
        lease_s = LEASE_S if lease is None else check_lease("lease", lease)
        stalled_s = math.inf
        if stalled_after is not None:
            stalled_s = check_lease("stalled_after", stalled_after)
        path = Path(store).expanduser()
        if claims is None:
            kind = network_file_system(path)
            if kind is not None:
                raise ModelConfigError(
                    f"trials=auto needs `claims` here: `store` is on a network file system ({kind})"
                    ", where one process alone uses it; pass claims=FOLDER on it, and a store on "
                    "the disk of each node"
                )
            folder = path.with_name(f"{path.name}.claims")
        elif isinstance(claims, str) and claims.strip():
            folder = Path(claims).expanduser()
        else:
            raise ModelConfigError(f"`claims` must be the path of a folder; got {claims!r}")
        if folder.exists() and not folder.is_dir():
            raise ModelConfigError(f"`claims` must be a folder; {str(folder)!r} is a file")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelConfigError(
                f"`claims` must be a folder that can be written; got {str(folder)!r} "
                f"({error.strerror})"
            ) from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ModelConfigError(
                f"`claims` must be a folder that can be written; got {str(folder)!r}"
            )
        return cls(folder, lease_s, claims is not None, stalled_s)

    @staticmethod
    def check_ranks(world_size: int, data_parallel_size: int = 1) -> None:
        """Refuse several ranks, which divide the questions among themselves.

        Raises
        ------
        ModelConfigError
            If there are several, or if vLLM loads the model anew for every block of trials.
        """
        if data_parallel_size > 1:
            raise ModelConfigError(
                "trials=auto needs data_parallel_size=1, for vLLM loads the model in every call; "
                f"got {data_parallel_size} (start {data_parallel_size} processes, one per GPU)"
            )
        if world_size > 1:
            raise ModelConfigError(
                f"trials=auto divides the trials itself; got {world_size} ranks (start separate "
                "processes without accelerate or torchrun, or leave out trials=auto)"
            )


class SharedSink(StoreSink):
    """A store whose new trials are first appended to the log of this process, if there is one."""

    shared: SharedTrials | None = None

    def add(self, trial: Trial) -> Trial:
        """Store a trial; return it, or the one that is stored already.

        If another process has taken the trial over, it is not stored.
        """
        if self.shared is None or self.shared.publish(trial):
            return super().add(trial)
        return trial

    def add_prompt_signals(self, model: str, prompt: str, signals: Mapping[str, Any]) -> None:
        """Store the signals of a prompt."""
        if self.shared is not None:
            self.shared.publish_prompt_signals(model, prompt, signals)
        super().add_prompt_signals(model, prompt, signals)


class Waiting:
    """The processes that this one waits for, and since when no trial of each has come.

    Parameters
    ----------
    claims : Claims
        Who holds which block.
    stalled_s : float
        Seconds of waiting without a trial of a process after which its claims expire. Time in which
        this process did not look does not count.
    """

    def __init__(self, claims: Claims, stalled_s: float) -> None:
        self._claims, self._stalled_s = claims, stalled_s
        self._started = time.monotonic()
        self._last: dict[str, float] = {}
        self._since: float | None = None
        self._looked = self._watched_since = self._started
        self._pause_s = self._next = 0.0

    def note_trial(self, block: int) -> None:
        """Note that a trial of another process has come."""
        worker = self._claims.owner(block)
        if worker is not None:
            self._last[worker] = time.monotonic()
            self._claims.overrule(worker, False)

    def end(self) -> None:
        """Note that this process has work again."""
        self._since = None

    def look(self, n_missing: Mapping[int, int]) -> None:
        """Log who is waited for, at growing intervals, and overrule those that have stalled.

        Parameters
        ----------
        n_missing : mapping of int to int
            The number of missing trials of each block that lacks some.
        """
        now = time.monotonic()
        if self._since is None or now - self._looked > _LONGEST_GAP_S:
            self._watched_since = now
        self._looked = now
        by_worker: Counter[str] = Counter()
        for block, number in n_missing.items():
            by_worker[self._claims.owner(block) or ""] += number
        if self._since is None:
            self._since, self._pause_s = now, _FIRST_MESSAGE_S
            self._next = now + self._pause_s
            others = self._claims.n_workers - 1
            log.info(
                "every trial is claimed: waiting for %s of %s",
                plural(by_worker.total(), "trial"),
                plural(others, "other process", "other processes")
                if others
                else "a process that died",
            )
        elif now >= self._next:
            self._pause_s = min(2 * self._pause_s, _LONGEST_MESSAGE_S)
            self._next = now + self._pause_s
            self._log_processes(by_worker, now)
        for worker, number in by_worker.items():
            silent_s = min(self._silent_s(worker, now), now - self._watched_since)
            if silent_s >= self._stalled_s and self._claims.overrule(worker):
                log.warning(
                    "no trial of %s came for %s (stalled_after=%g): others sample its %s",
                    place_of(worker),
                    format_duration(self._silent_s(worker, now)),
                    self._stalled_s,
                    plural(number, "trial"),
                )

    def _silent_s(self, worker: str, now: float) -> float:
        """Return the seconds for which this process has seen no trial of another one."""
        return now - self._last.get(worker, self._started)

    def _log_processes(self, by_worker: Counter[str], now: float) -> None:
        assert self._since is not None
        named = [
            f"{number:,} of {place_of(worker)} (no trial of it for "
            f"{format_duration(self._silent_s(worker, now))})"
            for worker, number in by_worker.most_common(_NAMED)
        ]
        if len(by_worker) > _NAMED:
            more = len(by_worker) - _NAMED
            named.append(f"the others of {plural(more, 'more process', 'more processes')}")
        log.info(
            "waiting for %s, for %s so far: %s; "
            "a process that hangs may be killed, and others do its trials",
            plural(by_worker.total(), "trial"),
            format_duration(now - self._since),
            ", ".join(named),
        )


class SharedTrials:
    """The trials of a run that this process shares with others.

    Parameters
    ----------
    model : RecordingMixin
        The recording model.
    sharing : Sharing
        How they are shared.
    requests : sequence of TrialRequest
        Every trial of the run once, in trial order; equal in all processes.
    stored : mapping of TrialId to Trial
        Those that the store has.
    """

    def __init__(
        self,
        model: RecordingMixin,
        sharing: Sharing,
        requests: Sequence[TrialRequest],
        stored: Mapping[tuple[TrialKey, int], Trial],
    ) -> None:
        self._model, self._sharing = model, sharing
        self._all: dict[TrialId, TrialRequest] = {
            TrialId(request.key, request.trial): request for request in requests
        }
        self._stored = stored
        self._missing: dict[TrialId, TrialRequest] = {
            name: request for name, request in self._all.items() if name not in stored
        }
        size = min(_LARGEST_BLOCK, math.ceil(len(self._all) / _BLOCKS))
        names = list(self._all)
        self._blocks = [names[i : i + size] for i in range(0, len(names), size)]
        self._block_of = {name: i // size for i, name in enumerate(names)}
        self._questions = {request.key: request for request in reversed(requests)}
        self._claims: Claims
        self._waiting: Waiting
        self._log: TrialLog | None = None
        self._prompts = {request.key.prompt for request in requests}
        self._published: set[TrialId] = set()  # by others
        self._lost: set[TrialId] = set()

    def sample(self, disable_tqdm: bool = False) -> Generator[Trial, None, None]:
        """Yield every missing trial, sampled by this process or by another one.

        Raises
        ------
        StoreError
            If the folder of claims cannot be used.
        """
        if not self._missing and not self._sharing.exchanges:
            return
        sink = self._model.sink
        assert isinstance(sink, SharedSink)
        folder = self._sharing.folder / self._model.model_key.replace(":", "-")
        with ExitStack() as stack:
            bar = stack.enter_context(
                tqdm(total=len(self._missing), desc="Sampling trials", disable=disable_tqdm)
            )
            self._claims = stack.enter_context(
                Claims(folder / f"work-{self._work_hash()}", self._sharing.lease_s)
            )
            self._waiting = Waiting(self._claims, self._sharing.stalled_s)
            if self._sharing.exchanges:
                self._log = stack.enter_context(TrialLog(folder / "trials", self._claims.worker))
            sink.shared = self
            stack.callback(setattr, sink, "shared", None)
            for trial in self._sample():
                bar.update()
                yield trial

    def _work_hash(self) -> str:
        """Return the hash of all trials, seeds and blocks: only equal work is shared."""
        work = [
            [request.key.to_dict(), request.trial, request.seed, self._block_of[name]]
            for name, request in self._all.items()
        ]
        return hash_json(work).rpartition(":")[2]

    def _sample(self) -> Iterator[Trial]:
        yield from self._received()
        self._publish_stored()
        while self._missing:
            taken = self._take()
            if taken:  # somebody may have sampled in them since the last look
                yield from self._received()
            requests = self._requests(taken)
            first = next(requests, None)
            if first is not None:
                self._waiting.end()
                yield from self._sampled(chain([first], requests))
            elif self._missing:
                self._waiting.look(Counter(self._block_of[name] for name in self._missing))
                time.sleep(self._look_s)
            yield from self._received()

    def _sampled(self, requests: Iterator[TrialRequest]) -> Iterator[Trial]:
        """Sample requests, and yield their trials and those of others that came meanwhile."""
        wanted: RequestStream | list[TrialRequest]
        if self._model.streams:
            wanted = RequestStream(list(self._questions.values()), len(self._missing), requests)
        else:
            wanted = list(requests)
        next_look = time.monotonic() + self._look_s
        for trial in self._model.sampled(wanted, disable_tqdm=True):
            name = TrialId(trial.key, trial.trial)
            if name in self._lost:
                self._lost.discard(name)
            elif self._missing.pop(name, None) is not None:
                yield trial
            if time.monotonic() >= next_look:
                self._claims.refresh()
                yield from self._received()
                next_look = time.monotonic() + self._look_s

    @property
    def _look_s(self) -> float:
        """Seconds between two looks at what other processes did."""
        return min(self._sharing.lease_s / 20.0, _LONGEST_LOOK_S)

    # -- claims ------------------------------------------------------------------------------

    def _take(self) -> list[int]:
        """Claim free blocks with missing trials, in trial order, up to this process's share.

        For a backend that takes a stream, new blocks are left to :meth:`_requests`.
        """
        self._claims.refresh()
        share = math.ceil(len(self._missing) / (2 * self._claims.n_workers))
        most = min(share, max(len(self._questions), _LIST))
        taken: list[int] = []
        n_trials = 0
        for block in range(len(self._blocks)):
            n_missing = len(self._missing_of(block))
            if n_trials >= most:
                break
            if n_missing and self._is_free(block) and self._claims.claim(block):
                taken.append(block)
                n_trials += n_missing
        return taken

    def _is_free(self, block: int) -> bool:
        if self._claims.is_new(block):
            return not self._model.streams
        return self._claims.is_expired(block) or self._claims.holds(block)

    def _requests(self, taken: Sequence[int]) -> Iterator[TrialRequest]:
        """Yield the requests for the missing trials of some blocks, then of new ones.

        A new block is claimed when the backend's stream asks for more, maybe in another thread.
        """
        for block in taken:
            yield from self._missing_of(block)
        if self._model.streams:
            for block in range(len(self._blocks)):
                is_open = self._claims.is_new(block) and bool(self._missing_of(block))
                if is_open and self._claims.claim(block, only_new=True):
                    yield from self._missing_of(block)

    def _missing_of(self, block: int) -> list[TrialRequest]:
        return [self._all[name] for name in self._blocks[block] if name in self._missing]

    # -- the exchange ------------------------------------------------------------------------

    def publish(self, trial: Trial) -> bool:
        """Append a trial to the log; return False if its block was taken over by another process.

        With one store for all processes there is no log: the store keeps the first of two trials.
        """
        if self._log is None:
            return True
        name = TrialId(trial.key, trial.trial)
        if not self._claims.holds(self._block_of[name]):
            self._lost.add(name)
            self._model.warn_once(
                "lost claims",
                "others have taken over trials of this process, because it was stopped for longer "
                "than lease=%g seconds, or because none of its trials came for their "
                "stalled_after; those of them that it finishes now are dropped",
                self._sharing.lease_s,
            )
            return False
        self._log.add(trial)
        return True

    def publish_prompt_signals(self, model: str, prompt: str, signals: Mapping[str, Any]) -> None:
        """Append the signals of a prompt to the log, if there is one."""
        if self._log is not None:
            self._log.add_prompt_signals(model, prompt, signals)

    def _publish_stored(self) -> None:
        """Append the trials that this process alone has stored, in blocks that nobody claimed."""
        if self._log is None:
            return
        self._claims.refresh()
        for block, names in enumerate(self._blocks):
            own = [name for name in names if name in self._stored and name not in self._published]
            if own and self._claims.claim(block, only_new=True):
                for name in own:
                    self._log.add(self._stored[name])

    def _received(self) -> list[Trial]:
        """Return the missing trials that other processes have sampled; they are stored now."""
        trials = self._new_in_store() if self._log is None else self._new_in_logs(self._log)
        for trial in trials:
            name = TrialId(trial.key, trial.trial)
            del self._missing[name]
            self._waiting.note_trial(self._block_of[name])
        self._model.count_from_store(len(trials))
        return trials

    def _new_in_store(self) -> list[Trial]:
        numbers = self._model.sink.numbers_of({name.key for name in self._missing})
        wanted = [r for name, r in self._missing.items() if name.trial in numbers[name.key]]
        return list(self._model.stored_trials(wanted).values()) if wanted else []

    def _new_in_logs(self, trial_log: TrialLog) -> list[Trial]:
        received = trial_log.receive()
        if received.damaged:
            log.warning(
                "%s: %s left out: %s",
                self._sharing.folder,
                plural(len(received.damaged), "damaged line is", "damaged lines are"),
                list_first(received.damaged),
            )
            trial_log.ask_again(received)
        new: dict[TrialId, Trial] = {}
        for trial in received.trials:
            name = TrialId(trial.key, trial.trial)
            self._published.add(name)
            wanted = self._missing.get(name)
            if wanted is not None and trial.seed in (None, wanted.seed):
                new.setdefault(name, trial)
        sink = self._model.sink
        assert isinstance(sink, SharedSink)
        sink.store.add(new.values())
        for model, prompt, signals in received.prompt_signals:
            if model == self._model.model_key and prompt in self._prompts:
                sink.store.add_prompt_signals(model, prompt, signals)
        return list(new.values())
