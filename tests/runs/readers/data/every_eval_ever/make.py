"""Make the records in this folder: every-eval-ever 0.3.0 converts the log of inspect_ai beside.

In an environment with inspect_ai 0.3.285 and every-eval-ever 0.3.0. The converter has no developer
for the provider `mockllm`, so the model gets another one first. It writes the mean over the epochs
of a question into the record of every epoch.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from inspect_ai.log import EvalLog, read_eval_log, write_eval_log

HERE = Path(__file__).parent


work = Path(tempfile.mkdtemp())
text = read_eval_log(str(HERE.parent / "inspect_ai" / "weak.eval")).model_dump_json()
text = text.replace("mockllm/weak", "openai/weak")
write_eval_log(EvalLog.model_validate_json(text), str(work / "weak.json"))
converter = [sys.executable, "-m", "every_eval_ever.converters.inspect"]
given = ["--log_path", str(work / "weak.json"), "--output_dir", str(work / "out")]
subprocess.run([*converter, *given], check=True)
for file in (work / "out").rglob("*.json*"):
    shutil.copy(file, HERE)
