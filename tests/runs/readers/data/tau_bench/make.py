"""Cut the results of tau-bench in this folder from those that its authors publish.

They are `historical_trajectories/gpt-4o-airline.json` of github.com/sierra-research/tau-bench
(commit 59a200c, MIT licence), whose README gives Pass^1 to Pass^4 as 0.420, 0.273, 0.220, 0.200.
Names and texts of tasks and the conversations are left out but for the first words.
"""

import json
import sys
from pathlib import Path

results = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
for result in results:
    result["info"] = {key: result["info"][key] for key in ("source", "user_cost")}
    system = result["traj"][0]
    result["traj"] = [{"role": system["role"], "content": system["content"][:22]}]
target = Path(__file__).parent / "gpt-4o-airline.json"
target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
