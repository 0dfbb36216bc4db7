"""Saved runs that many tests of the command line read, written once."""

from __future__ import annotations

import numpy as np
import pytest
from _support.saved_matrices import outcomes, saved
from _support.saved_runs import question, write_run


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Return a folder of saved runs, matrices and counts; no test may write into it."""
    folder = tmp_path_factory.mktemp("files")
    saved(folder / "a", "a", outcomes(1, 0.1), completion_tokens=20)
    saved(folder / "b", "b", outcomes(2), completion_tokens=50)
    saved(folder / "b-hmmt", "b", outcomes(2), task="hmmt")
    saved(folder / "c-elsewhere", "c", outcomes(3), first=100)
    np.savez(folder / "two.npz", R=np.stack([outcomes(1, 0.2), outcomes(2)]))
    np.savez(folder / "three.npz", R=np.stack([outcomes(1), outcomes(2), outcomes(3)]))
    np.savez(folder / "one.npz", R=outcomes(1))
    (folder / "counts.csv").write_text("id,c,n\n1,3,8\n2,0,8\n", encoding="utf-8")
    (folder / "scores.csv").write_text(
        "model,question,score\na,p,0.5\na,q,0.25\nb,p,1\nb,q,0.75\n", encoding="utf-8"
    )
    broken = saved(folder / "broken", "a", outcomes(1))
    (samples,) = broken.glob("samples_*")
    lines = samples.read_text(encoding="utf-8").splitlines()
    samples.write_text("\n".join([lines[0], '{"doc_id": 1,', *lines[2:]]), encoding="utf-8")
    trial = {"text": "\\boxed{4}", "outcome": 1, "finish_reason": "stop", "completion_tokens": 9}
    write_run(folder / "boxed", "boxed", [question([trial], number) for number in (0, 1)])
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("no run", encoding="utf-8")
    return folder
