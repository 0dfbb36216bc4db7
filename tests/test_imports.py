"""What importing the package may and may not pull in."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("lm_eval", "torch", "matplotlib", "datasets", "transformers", "pandas")


def test_the_numeric_api_imports_neither_the_harness_nor_torch():
    code = f"import sys, lm_eval_bayes; print([m for m in {HEAVY!r} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    assert run.stdout.strip() == "[]"


def test_every_public_name_exists():
    import lm_eval_bayes

    missing = [name for name in lm_eval_bayes.__all__ if not hasattr(lm_eval_bayes, name)]
    assert missing == []
