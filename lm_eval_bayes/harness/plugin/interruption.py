"""What `lm_eval --model trials` says when it is stopped: what is stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.store.trial_store import TrialStore

_STORE = re.compile(r"(?:^|[\s,=])store=([^\s,]+)")


def stopped(words: Sequence[str]) -> str | None:
    """Return a sentence about a command that was stopped, None if it has no trial store.

    Parameters
    ----------
    words : sequence of str
        The command, as in ``sys.argv``.
    """
    found = next(filter(None, map(_STORE.search, words[1:])), None)
    if found is None:
        return None
    path = Path(found[1]).expanduser()
    try:
        with TrialStore.open(path, mode="read", wait_s=1.0) as store:
            stored = f"{plural(sum(store.trial_counts().values()), 'trial')} in {path}"
    except Exception:  # it must not hide that the command was stopped
        stored = f"the trials in {path}" if path.exists() else "nothing yet"
    return f"stopped; stored: {stored}; run the same command again to resume"
