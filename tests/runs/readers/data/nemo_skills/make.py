"""Cut the outputs of NeMo-Skills in this folder from those that its own tests read.

They are in tests/data/eval_outputs/eval-results of github.com/NVIDIA/NeMo-Skills (commit 0b012df8,
Apache 2.0), in files that end in `-test`; its metrics of them are in metrics.json-test there, of
which those of the last evaluation mode are kept. Run this with that folder as the argument.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
BENCHMARKS = ("answer-judge", "gpqa", "hendrycks_math", "human-eval", "minif2f")


source = Path(sys.argv[1])
metrics = json.loads((source / "metrics.json-test").read_text(encoding="utf-8"))
kept = {}
for name in BENCHMARKS:
    target = HERE / "published" / "eval-results" / name
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted((source / name).glob("output-rs*.jsonl-test")):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            if "judgement" in row:
                before, marker, verdict = row["judgement"].rpartition("Judgement:")
                row["judgement"] = f"{before[:20]}{marker}{verdict[:20]}"
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (target / file.name.removesuffix("-test")).write_text(text, encoding="utf-8")
    modes = metrics[name]
    kept[name] = {mode: modes[mode] for mode in modes if mode.startswith("pass@")}
(HERE / "metrics.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
