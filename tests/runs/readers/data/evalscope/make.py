"""Make the outputs of evalscope in this folder: in an environment with evalscope 1.14.1, run this.

The model is evalscope's mock, whose answers are set here: nothing is asked over a network. What the
tool itself computed is printed, for the tests.
"""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from evalscope import TaskConfig, run_task
from evalscope.api.model import ModelOutput
from evalscope.models.mockllm import MockLLM

HERE = Path(__file__).parent
#: By model and question the letters of three generations; ! raises an error.
ANSWERS = {
    "strong": ["AAA", "BBA", "CCC", "DD!"],
    "weak": ["ABC", "BAA", "DDD", "DAA"],
}
RIGHT = "ABCD"
ABOUT_TEXT = {0: "red", 1: "blue sky", 2: "green"}
state = {}


def generate(self, input, tools, tool_choice, config):
    text = input[-1].text
    number = int(re.search(r"Question (\d)", text)[1])
    times = state.setdefault((state["model"], text), [])
    times.append(number)
    if "word" in text:
        words = ("red", "blue sea", "green") if state["model"] == "strong" else ("red", "sky", "no")
        content = words[number]
    else:
        letter = ANSWERS[state["model"]][number][len(times) - 1]
        if letter == "!":
            raise RuntimeError("the server is gone")
        content = f"答案：{letter}" if "答案" in text else f"ANSWER: {letter}"
    output = ModelOutput.from_content(model=state["model"], content=content)
    return output


def strip(row):
    """Leave out the text of the prompt but for the question, and what is empty."""
    for message in row.get("messages", []):
        if message["role"] == "user" and isinstance(message["content"], str):
            message["content"] = re.search(r"Question \d[^\n]*", message["content"])[0]
    if "sample_score" in row:
        row["sample_score"]["score"]["metadata"] = {}
    return row


work = Path(tempfile.mkdtemp())
os.chdir(work)
for folder in ("mcq", "qa"):
    Path(folder).mkdir()
choices = {letter: f"choice {letter}" for letter in RIGHT}
rows = [{"question": f"Question {n}?", **choices, "answer": RIGHT[n], "id": n} for n in range(4)]
text = "\n".join(map(json.dumps, rows))
Path("mcq/letters_val.jsonl").write_text(text + "\n", encoding="utf-8")
rows = [{"query": f"Question {n}, a word?", "response": t} for n, t in ABOUT_TEXT.items()]
Path("qa/words.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
MockLLM.generate = generate
for model in ANSWERS:
    state["model"] = model
    config = TaskConfig(
        model=model,
        eval_type="mock_llm",
        datasets=["general_mcq", "general_qa"],
        dataset_args={
            "general_mcq": {"local_path": "mcq", "subset_list": ["letters"]},
            "general_qa": {"local_path": "qa", "subset_list": ["words"]},
        },
        generation_config={"temperature": 0.7, "max_tokens": 32},
        repeats=3,
        eval_batch_size=1,
        work_dir=str(work / "outputs" / model),
        no_timestamp=True,
        ignore_errors=True,
        collect_perf=False,
    )
    run_task(config)
    source, target = work / "outputs" / model, HERE / model
    shutil.rmtree(target, ignore_errors=True)
    for file in sorted(source.rglob("*.jsonl")):
        kept = target / file.relative_to(source)
        kept.parent.mkdir(parents=True, exist_ok=True)
        rows = [strip(json.loads(line)) for line in file.read_text("utf-8").splitlines()]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        kept.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for file in sorted(source.rglob("reports/*/*.json")):
        report = json.loads(file.read_text(encoding="utf-8"))
        for metric in report["metrics"]:
            print(model, file.name, metric["identity"], metric["score"], metric["num"])
        dropped = ("dataset_description", "metrics", "analysis")
        report = {key: value for key, value in report.items() if key not in dropped}
        kept = target / file.relative_to(source)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(report) + "\n", encoding="utf-8")
shutil.rmtree(work)
