"""Two ranks on CPU: each registers by itself, and together they find what one finds.

The harness's own `hf` model splits the questions over ranks on GPUs only, so the mimic gets two
ranks here, over torch's gloo. Five questions are odd for two ranks: the harness pads the
short one by asking its last question again, and those answers must not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from _support.paths import REPOSITORY
from _support.ports import free_port

from lm_eval_bayes.store.merge import merge

pytestmark = pytest.mark.slow


RANKED = """
import json, os, sys
import torch
import torch.distributed as dist

assert not any(m.startswith("lm_eval_bayes") for m in sys.modules)
from lm_eval import simple_evaluate
from lm_eval.api.registry import get_model

ranks = int(os.environ.get("WORLD_SIZE", "1"))
if ranks > 1:
    dist.init_process_group("gloo")

class Ranked(get_model("biased_coin")):
    device = torch.device("cpu")
    rank = property(lambda self: dist.get_rank() if ranks > 1 else 0)
    world_size = property(lambda self: ranks)

    def all_gather(self, tensor):
        parts = [torch.zeros_like(tensor) for _ in range(ranks)]
        dist.all_gather(parts, tensor)
        return torch.stack(parts)

    def gather_object(self, thing, dst=0):
        parts = [None] * ranks if self.rank == dst else None
        dist.gather_object(thing, parts, dst=dst)
        return parts

    def barrier(self):
        dist.barrier()

arguments = {"beta": "2:3", "seed": 11}
if sys.argv[2:]:
    from lm_eval_bayes.harness.models.biased_coin.model import CoinSampling
    from lm_eval_bayes.harness.models.trials import RecordingMixin

    bases = (RecordingMixin, CoinSampling, Ranked)
    Ranked = type("Recorded", bases, {"backend_name": "biased_coin"})
    arguments["store"] = sys.argv[2]

results = simple_evaluate(
    model=Ranked(**arguments), tasks=["demo_arithmetic_bayes"], limit=5,
    metadata={"bayes_n": 4}, bootstrap_iters=0,
)
if results is not None and int(os.environ.get("RANK", "0")) == 0:
    row = results["results"]["demo_arithmetic_bayes"]
    numbers = {k: v for k, v in row.items() if isinstance(v, (int, float))}
    with open(sys.argv[1], "w") as file:
        json.dump(numbers, file)
if ranks > 1:
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [False, True])
def test_two_ranks_find_what_one_finds(recorded, site_folder, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "ranked.py"
    # As at the start of Python, wherever this package is installed or not.
    script.write_text(
        f"import site; site.addsitedir({str(site_folder)!r})\n{RANKED}", encoding="utf-8"
    )
    command = ["torch.distributed.run", "--nproc_per_node=2", f"--master_port={free_port()}"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("LM_EVAL_BAYES")}
    env |= {"PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    found = {}
    for name, start in {"one": [], "two": ["-m", *command]}.items():
        out = tmp_path / f"{name}.json"
        result = subprocess.run(
            [
                *(sys.executable, *start, str(script), str(out)),
                *([str(tmp_path / name / "trials.sqlite")] if recorded else []),
            ],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        found[name] = json.loads(out.read_text(encoding="utf-8"))
    assert found["two"] == pytest.approx(found["one"], abs=1e-12)
    assert [k for k in found["one"] if k.startswith("bayes@4,")]
    if recorded:
        one = tmp_path / "one" / "trials.sqlite"
        ranks = [tmp_path / "two" / name for name in ("trials.sqlite", "trials.rank1.sqlite")]
        assert all(path.is_file() for path in ranks)
        # five questions, four trials each; what was asked again for padding is kept once
        merged = merge([*ranks, one], tmp_path / "all.sqlite")
        assert (merged.added, merged.n_conflicts) == (20, 0)
