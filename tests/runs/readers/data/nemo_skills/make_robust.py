"""Write the folder `robust`: outputs that `make.py` cut, as `ns robust_eval` lays them out.

`metrics.json` is what NeMo-Skills' own summarize_robustness makes of them. Run this with a checkout
of github.com/NVIDIA-NeMo/Skills (commit 8b18f399) as the argument.
"""

import os
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

os.chdir(Path(__file__).parent)
model = Path("robust", "qwen")
log = model / "summarize_robustness" / "main.log"
log.parent.mkdir(parents=True)
for prompt, seeds in {"boxed_2": (0, 1), "boxed_10": (2, 3)}.items():
    folder = model / "gpqa" / prompt / "eval-results" / "gpqa"
    folder.mkdir(parents=True)
    for seed in seeds:
        shutil.copy(f"published/eval-results/gpqa/output-rs{seed}.jsonl", folder)

# without what starts jobs on clusters
app, clusters, pipeline = (ModuleType(name) for name in ("app", "utils", "pipeline"))
app.app = type("App", (), {"command": lambda self: lambda function: function})()
app.typer_unpacker = lambda function: function
clusters.__getattr__ = lambda name: None
pipeline.__path__ = [str(Path(sys.argv[1], "nemo_skills", "pipeline"))]
for name, module in {"": pipeline, ".app": app, ".utils": clusters}.items():
    sys.modules[f"nemo_skills.pipeline{name}"] = module
sys.path.insert(0, sys.argv[1])
from nemo_skills.pipeline.summarize_robustness import summarize_robustness

with log.open("w", encoding="utf-8") as file, redirect_stdout(file):
    summarize_robustness(str(model), *[None] * 4, False, None, model / "metrics.json", False)
