"""Where things are: the repository, and the real data beside it."""

from __future__ import annotations

import os
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
REPOSITORY = SUPPORT.parents[1]
SHARED = Path(os.environ.get("LM_EVAL_BAYES_SHARED", REPOSITORY.parent / "shared"))
