"""The file of verdicts that a verifier is writing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import IO

from lm_eval_bayes._util.files import write_atomic
from lm_eval_bayes.runs.verdicts import (
    TrialVerdict,
    VerdictsError,
    VerdictsHeader,
    read_verdicts,
    said_of,
)
from lm_eval_bayes.store.errors import StoreFileError


class VerdictsFile:
    """A file of verdicts that more are added to; nobody else may meanwhile.

    Parameters
    ----------
    path : path
        The file; it is made with the header if it is missing.
    header : VerdictsHeader
        Of a new file; one that is there must be of the same verifier and samples.
    restart : bool
        Whether to begin anew where there is a file, which is kept with `.before` behind its name.

    Attributes
    ----------
    header : VerdictsHeader
        Of the file: one that was there keeps its own baseline.
    trials : dict of (doc_id, trial) to TrialVerdict
        All that is in it.

    Raises
    ------
    VerdictsError
        If what is there is another verifier's, broken, or being written.
    StoreFileError
        If it cannot be written.
    """

    def __init__(
        self, path: str | PathLike[str], header: VerdictsHeader, restart: bool = False
    ) -> None:
        self.path = Path(path)
        if restart or not self.path.exists():
            self._file = self._fresh(header)
            self.header, known = header, {}
        else:
            self._file = self._opened()
            try:
                there = read_verdicts(self.path)
                there.check_verifier(header.samples, header.verifier)
                self._file.truncate(there.size)  # what a kill cut off
            except BaseException:
                self._file.close()
                raise
            self.header, known = there.header, dict(there.trials)
        self.trials: dict[tuple[int, int], TrialVerdict] = known

    def __enter__(self) -> VerdictsFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def said_of(self, doc_id: int, trial: int, text: str) -> TrialVerdict | None:
        """Return what was said of a trial, see :func:`verdicts.said_of`."""
        return said_of(self.path, self.trials, doc_id, trial, text)

    def add(self, verdicts: Iterable[TrialVerdict]) -> None:
        """Write verdicts, and see them safely on the disk.

        Raises
        ------
        StoreFileError
            If they cannot be written.
        """
        added = list(verdicts)
        lines = [json.dumps(one.to_dict(), allow_nan=False) + "\n" for one in added]
        try:
            self._file.write("".join(lines).encode("ascii"))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StoreFileError(f"{self.path} cannot be written: {error.strerror}") from error
        self.trials.update((one.key, one) for one in added)

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        self._file.close()

    def _fresh(self, header: VerdictsHeader) -> IO[bytes]:
        line = json.dumps(header.to_dict(), allow_nan=False) + "\n"
        if self.path.exists():
            self._opened().close()  # refused while another process writes
        try:
            if self.path.exists():
                # judging again may stop before it is complete
                backup = self.path.with_name(f"{self.path.name}.before")
                write_atomic(backup, self.path.read_bytes(), parents=False)
            write_atomic(self.path, line.encode("ascii"), parents=False)
        except OSError as error:
            raise StoreFileError(f"{self.path} cannot be written: {error.strerror}") from error
        return self._opened()

    def _opened(self) -> IO[bytes]:
        try:
            file = open(self.path, "ab")  # noqa: SIM115  closed with this object
        except OSError as error:
            raise StoreFileError(f"{self.path} cannot be written: {error.strerror}") from error
        if not _locked(file):
            file.close()
            raise VerdictsError(f"{self.path} is being written by another process")
        return file


def _locked(file: IO[bytes]) -> bool:
    """Lock a file until it is closed; True too where files cannot be locked."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
