"""What `lm-eval-bayes doctor` finds of questions, folders and stores."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_bayes._util.text import format_bytes
from lm_eval_bayes.errors import LmEvalBayesError

if TYPE_CHECKING:
    from lm_eval_bayes.harness.task.contest_data import Reach

#: Room below which a folder is worth a word.
LITTLE_BYTES = 1_000_000_000


class State(str, Enum):
    """What a finding comes to."""

    ok = "ok"
    #: Works, or is needed for some runs only.
    note = "note"
    #: A run needs it and it is missing.
    wrong = "wrong"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    section: str
    name: str
    state: State
    found: str
    mend: str | None = None


# -- questions -----------------------------------------------------------------------------------


def questions(asked: Reach | None, forbidden: str | None) -> Iterator[Finding]:
    """Look for the questions of the contests: in the cache, else where the hub was asked."""
    from lm_eval_bayes.harness.task import contest_data

    unreached = None if asked is None else asked.results()
    for one in contest_data.needed():
        tasks = ", ".join(one.tasks)
        if contest_data.is_cached(one):
            told = f"in the cache, for {tasks}"
            yield Finding("questions", one.name, State.ok, told)
            continue
        loaded = f"load_dataset({one.name!r}, revision={one.revision!r})"
        fetch = f'python -c "from datasets import load_dataset; {loaded}"'
        if unreached is None:
            state = State.wrong if forbidden else State.note
            why = f"{forbidden} forbids to fetch" if forbidden else "the hub was not asked for"
            told = f"not in the cache, and {why} them, for {tasks}"
            fetch = f"env -u {forbidden} {fetch}" if forbidden else fetch
            yield Finding("questions", one.name, state, told, fetch)
            continue
        reason = unreached[one.name]
        if reason is None:
            told = f"within reach on the hub, for {tasks}"
            yield Finding("questions", one.name, State.ok, told)
        else:
            told = f"neither in the cache nor within reach ({reason}), for {tasks}"
            yield Finding("questions", one.name, State.wrong, told, fetch)


# -- folders -------------------------------------------------------------------------------------


def folders() -> Iterator[Finding]:
    """Look at the folders that a run writes to."""
    from lm_eval_bayes.harness.plugin.installed import hash_folder
    from lm_eval_bayes.harness.task.contest_data import cache_folder

    try:
        temporary = Path(tempfile.gettempdir())
    except OSError as error:
        told = f"none can be written to: {error.strerror or error}"
        yield Finding("folders", "temporary", State.wrong, told, 'export TMPDIR="$HOME"')
    else:
        yield _folder("temporary", temporary, 'export TMPDIR="$HOME"')
    yield _folder("questions", cache_folder(), 'export HF_HOME="$HOME/hf_home"')
    # Hashes of weights are only taken again where they cannot be kept.
    kept = _folder("hashes of weights", hash_folder(), 'export XDG_CACHE_HOME="$HOME/.cache"')
    yield kept if kept.state is State.ok else Finding(**{**vars(kept), "state": State.note})


def _folder(name: str, folder: Path, mend: str, section: str = "folders") -> Finding:
    """Look at a folder that shall be written to, or at the one in which it will be made."""
    reason = _unwritable(folder)
    if reason is not None:
        told = f"{folder} cannot be written to: {reason}"
        return Finding(section, name, State.wrong, told, mend)
    free = shutil.disk_usage(_existing(folder)).free
    state = State.ok if free >= LITTLE_BYTES else State.note
    return Finding(section, name, state, f"{folder}, {format_bytes(free)} free")


def _existing(folder: Path) -> Path:
    return next(one for one in (folder, *folder.absolute().parents) if one.exists())


def _unwritable(folder: Path) -> str | None:
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)):
            return None
    except OSError as error:
        return error.strerror or str(error)


def store_place(path: Path) -> Iterator[Finding]:
    """Look at the place of a trial store, and at the store if there is one."""
    from lm_eval_bayes._util.files import resolve_path
    from lm_eval_bayes.store.locations import is_store, network_warning
    from lm_eval_bayes.store.trial_store import TrialStore

    place = resolve_path(path)
    if not place.parent.is_dir():
        mend = f"mkdir -p {shlex.quote(str(place.parent))}"
        told = f"there is no folder {place.parent}"
        yield Finding("store", str(path), State.wrong, told, mend)
        return
    yield _folder(
        "its folder", place.parent, f"chmod u+w {shlex.quote(str(place.parent))}", "store"
    )
    try:
        exists = is_store(place)
        if exists:
            TrialStore.open(place, mode="read").close()
    except LmEvalBayesError as error:
        mend = f"lm-eval-bayes store verify {shlex.quote(str(place))}"
        yield Finding("store", str(path), State.wrong, str(error), mend)
    else:
        told = f"a trial store, {format_bytes(place.stat().st_size)}" if exists else "a new file"
        yield Finding("store", str(path), State.ok, told)
    warning = network_warning(place)
    if warning is not None:
        mend = "lm-eval-bayes store merge RANK0.sqlite RANK1.sqlite -o ALL.sqlite"
        yield Finding("store", "file system", State.note, warning, mend)
    else:
        yield Finding("store", "file system", State.ok, "local, or not known to be a network's")
