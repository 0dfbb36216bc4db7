"""Cut the runs of terminal-bench in this folder from those that were submitted to its leaderboard.

They are in github.com/laude-institute/terminal-bench-leaderboard, below results, in the folder
terminal-bench-core@0.1.1.
Of the trials only names, outcomes and times are kept, of the runs what was run and the accuracy.
"""

import json
import sys
from pathlib import Path

RUNS = {
    "chaterm_1": "20250911_chaterm_claude-4-sonnet/2025-09-10__19-49-26",
    "chaterm_2": "20250911_chaterm_claude-4-sonnet/2025-09-11__02-03-58",
    "ob1_1": "ob1-09-10-25/ob1_agent_sdk_20250910-012725",
    "ob1_2": "ob1-09-10-25/ob1_agent_sdk_20250910-014628",
}
DROPPED = {
    *("instruction", "parser_results", "recording_path", "trial_ended_at"),
    *("test_started_at", "test_ended_at"),
}
KEPT = ("run_id", "uuid", "dataset_name", "dataset_version", "agent_name", "n_attempts")


source = Path(sys.argv[1])
for name, folder in RUNS.items():
    run = json.loads((source / folder / "results.json").read_text(encoding="utf-8"))
    about = json.loads((source / folder / "run_metadata.json").read_text(encoding="utf-8"))
    results = [
        {
            key: "" if key == "instruction" else value
            for key, value in result.items()
            if key not in DROPPED or key == "instruction"
        }
        for result in run["results"]
    ]
    run = {"id": run["id"], "results": results, "accuracy": run["accuracy"]}
    about = {key: about[key] for key in (*KEPT, "model_name", "start_time", "end_time")}
    target = Path(__file__).parent / name
    target.mkdir(exist_ok=True)
    for file, content in (("results", run), ("run_metadata", about)):
        (target / f"{file}.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
    print(name, run["accuracy"])
