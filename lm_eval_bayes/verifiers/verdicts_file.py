"""A file of verdicts that is written: lines are only added, by one process at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import IO, Any

from lm_eval_bayes._util.files import write_atomic
from lm_eval_bayes._util.hashing import canonical_json
from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.runs.verdicts import (
    TrialVerdict,
    Verdicts,
    VerdictsError,
    VerdictsHeader,
    file_errors,
    read_verdicts,
)


class OtherVerifierError(VerdictsError):
    """A file of verdicts holds those of another verifier."""


def check_verifier(verdicts: Verdicts, samples: str, verifier: Mapping[str, Any]) -> None:
    """Refuse to go on with another verifier, or for other samples.

    Raises
    ------
    OtherVerifierError
        Naming what differs.
    """
    before = {"samples": verdicts.header.samples, **verdicts.header.verifier}
    now = {"samples": samples, **verifier}
    differ = [
        f"{name} {one_line(old, 80)}, now {one_line(new, 80)}"
        for name in {**before, **now}
        if (old := canonical_json(before.get(name))) != (new := canonical_json(now.get(name)))
    ]
    if differ:
        sentence = (
            f"{verdicts.path} holds the verdicts of another verifier or on other samples "
            f"({'; '.join(differ)}); judge anew with --restart, which keeps these as .before, "
            "or write elsewhere with --out (rubrics only read what is beside the samples)"
        )
        raise OtherVerifierError(sentence, "mismatch", "verifier", differ)


class VerdictsFile(Verdicts):
    """A file of verdicts that more are added to; nobody else may meanwhile.

    Parameters
    ----------
    path : path
        The file; it is made with the header if it is missing.
    header : VerdictsHeader
        Of a new file; an existing file must be of the same verifier and samples, and keeps its
        own baseline.
    restart : bool
        Whether to replace an existing file, which is renamed to end in `.before`.

    Raises
    ------
    VerdictsError
        If an existing file is another verifier's, broken, or being written.
    StoreFileError
        If it cannot be written.
    """

    def __init__(
        self, path: str | PathLike[str], header: VerdictsHeader, restart: bool = False
    ) -> None:
        path = Path(path)
        if restart and path.exists():
            _opened(path).close()  # refused while another process writes
            with file_errors(path, "written"):
                path.replace(path.with_name(f"{path.name}.before"))
        if not path.exists():
            line = json.dumps(header.to_dict(), allow_nan=False) + "\n"
            with file_errors(path, "written"):
                write_atomic(path, line.encode("ascii"))
        self._file = _opened(path)
        try:
            verdicts = read_verdicts(path)
            check_verifier(verdicts, header.samples, header.verifier)
            self._file.truncate(verdicts.size)  # what a kill cut off
        except BaseException:
            self._file.close()
            raise
        super().__init__(path, verdicts.header, verdicts.trials, verdicts.size)

    def __enter__(self) -> VerdictsFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, verdicts: Iterable[TrialVerdict]) -> None:
        """Write verdicts, and see them safely on the disk.

        Raises
        ------
        StoreFileError
            If they cannot be written.
        """
        added = list(verdicts)
        lines = [json.dumps(verdict.to_dict(), allow_nan=False) + "\n" for verdict in added]
        with file_errors(self.path, "written"):
            self._file.write("".join(lines).encode("ascii"))
            self._file.flush()
            os.fsync(self._file.fileno())
        self.trials.update((verdict.key, verdict) for verdict in added)


def _opened(path: Path) -> IO[bytes]:
    """Open a file to add to it, and lock it until it is closed.

    It is not locked on Windows, and where the file system has no locks.
    """
    with file_errors(path, "written"):
        file = open(path, "ab")  # noqa: SIM115  closed by the caller
    with suppress(ImportError, OSError):
        import fcntl

        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            sentence = f"{path} is being written by another process"
            raise VerdictsError(sentence, "conflict", str(path)) from None
    return file
