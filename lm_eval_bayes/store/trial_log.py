"""Logs through which processes with a store each exchange trials in a shared folder.

A process appends each of its trials to a file of its own, and reads what others appended to theirs.
A file has one writer, so no locks are needed, also not on NFS. A trial is on the disk of the shared
folder when :meth:`TrialLog.add` returns. A line that is cut short, because its writer was killed,
or that does not match its hash is no trial. What is no regular file is no log. A process whose own
log is removed or cut while it runs ends with an error: the others would wait for its trials.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from lm_eval_bayes._util.hashing import hash_bytes
from lm_eval_bayes.store.errors import StoreFileError
from lm_eval_bayes.store.tables import prompt_signals_row
from lm_eval_bayes.store.trial import Trial, TrialKey, compact_json, encode

_CHUNK = 1 << 20


@dataclass
class Received:
    """What other processes have appended since the last look.

    Attributes
    ----------
    trials : list of Trial
        Their trials.
    prompt_signals : list of (str, str, mapping)
        Signals of prompts: the hashes of model and prompt, and the signals.
    damaged : list of str
        File and position of complete lines that are no such record.
    damaged_lines : list of (str, int, int)
        The same lines: file, first byte, and the byte after the last one.
    """

    trials: list[Trial] = field(default_factory=list)
    prompt_signals: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    damaged_lines: list[tuple[str, int, int]] = field(default_factory=list)


class TrialLog:
    """The log of this process, and those of others.

    Parameters
    ----------
    folder : Path
        The shared folder of logs; it is created.
    writer : str
        The name of this process, which no other has or had.
    """

    def __init__(self, folder: Path, writer: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreFileError(
                f"the folder of logs {folder} cannot be created: {error.strerror}"
            ) from error
        self._folder, self._path = folder, folder / f"{writer}.jsonl"
        self._file: BinaryIO | None = None
        self._written = 0
        self._read: dict[str, int] = {}
        # by where each line of this process begins: its end, and what appends its record again
        self._lines: dict[int, tuple[int, Callable[[], None]]] = {}

    def __enter__(self) -> TrialLog:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, trial: Trial) -> None:
        """Append a trial.

        Raises
        ------
        StoreFileError
            If it cannot be written.
        """
        record = {f.name: getattr(trial, f.name) for f in fields(Trial) if f.name != "key"}
        self._append(
            {"kind": "trial", "key": trial.key.to_dict(), **record}, partial(self.add, trial)
        )

    def add_prompt_signals(self, model: str, prompt: str, signals: Mapping[str, Any]) -> None:
        """Append the signals of a prompt.

        Raises
        ------
        StoreFileError
            If they cannot be written.
        """
        record = {"kind": "prompt_signals", "model": model, "prompt": prompt}
        self._append(
            {**record, "signals": dict(signals)},
            partial(self.add_prompt_signals, model, prompt, signals),
        )

    def ask_again(self, received: Received) -> None:
        """Ask the writers of damaged lines, as far as they run, to append their records again.

        Raises
        ------
        StoreFileError
            If the log of this process cannot be written.
        """
        for name, start, end in received.damaged_lines:
            self._append({"kind": "damaged", "log": name, "start": start, "end": end})

    def _append(self, record: Mapping[str, Any], again: Callable[[], None] | None = None) -> None:
        # ASCII escapes preserve lone surrogates; Python's JSON preserves NaN.
        text = compact_json(record).encode("ascii")
        try:
            if self._file is None:
                self._file = open(self._path, "xb", buffering=0)  # noqa: SIM115
            line = hash_bytes(text).encode("ascii") + b" " + text + b"\n"
            if self._file.write(line) != len(line):
                raise OSError("the disk is full")
            os.fsync(self._file.fileno())
            if again is not None:
                self._lines[self._written] = self._written + len(line), again
            self._written += len(line)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreFileError(f"{self._path} cannot be written: {reason}") from error

    def receive(self) -> Received:
        """Return what was appended to the logs of others since the last call.

        Raises
        ------
        StoreFileError
            If one of them cannot be read, or the log of this process is no longer what it wrote.
        """
        received = Received()
        try:
            self._check_own()
            self._receive(received)
        except StoreFileError:
            raise
        except OSError as error:
            path = error.filename or self._folder
            raise StoreFileError(f"{path} cannot be read: {error.strerror}") from error
        return received

    def _check_own(self) -> None:
        """Refuse to go on if the log of this process was removed or cut."""
        if self._file is None:
            return
        if not self._path.exists():
            problem = "removed"
        elif os.fstat(self._file.fileno()).st_size < self._written:
            problem = "cut short"
        else:
            return
        raise StoreFileError(
            f"{self._path} was {problem} while this process uses it, so that others lack its "
            "trials; the same command goes on from its store"
        )

    def _receive(self, received: Received) -> None:
        for name in sorted(os.listdir(self._folder)):
            if name.endswith(".jsonl") and name != self._path.name:
                if not (self._folder / name).is_file():
                    continue
                for start, line in self._new_lines(name):
                    try:
                        self._add_record(received, line)
                    except (ValueError, TypeError, LookupError, RecursionError):
                        received.damaged.append(f"{name} at byte {start}")
                        received.damaged_lines.append((name, start, start + len(line)))

    def _new_lines(self, name: str) -> Iterator[tuple[int, bytes]]:
        """Yield the complete lines that are new, each with its position."""
        with open(self._folder / name, "rb") as file:
            file.seek(start := self._read.get(name, 0))
            rest = b""
            while chunk := file.read(_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield start, line
                    start += len(line) + 1
                    self._read[name] = start

    def _add_record(self, received: Received, line: bytes) -> None:
        """Parse a line of another process.

        Raises
        ------
        ValueError, TypeError, LookupError, RecursionError
            If it is not what was written.
        """
        digest, _, text = line.partition(b" ")
        if hash_bytes(text).encode("ascii") != digest:
            raise ValueError("the line does not match its hash")
        record = json.loads(text)
        kind = record.pop("kind") if isinstance(record, dict) else None
        if kind == "trial":
            trial = Trial(**{**record, "key": TrialKey(**record["key"])})
            _check_strings(*trial.key.to_dict().values())
            encode(trial)  # a trial that no store takes is a damaged line
            received.trials.append(trial)
        elif kind == "prompt_signals":
            model, prompt, signals = record["model"], record["prompt"], record["signals"]
            _check_strings(model, prompt)
            prompt_signals_row(model, prompt, signals, now=0.0)
            received.prompt_signals.append((model, prompt, signals))
        elif kind == "damaged":
            if record["log"] == self._path.name:
                self._append_again(int(record["start"]), int(record["end"]))
        else:
            raise ValueError(f"unknown kind {kind!r}")

    def _append_again(self, start: int, end: int) -> None:
        """Append the records again whose lines lie between two positions, in full or in part."""
        damaged = [b for b, (own_end, _) in self._lines.items() if b <= end and own_end > start]
        for begin in damaged:
            self._lines.pop(begin)[1]()


def _check_strings(*hashes: object) -> None:
    if not all(isinstance(value, str) for value in hashes):
        raise TypeError("a hash is no string")
