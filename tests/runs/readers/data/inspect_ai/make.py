"""Make the logs of inspect_ai in this folder: in an environment with inspect_ai 0.3.285, run this.

The model is `mockllm/model`, whose answers depend on the question and the epoch alone: nothing is
asked over a network. What the tool itself computed of each log is printed, for the tests.
"""

import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai._util.zipfile import zipfile_compress_kwargs
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import convert_eval_logs, read_eval_log
from inspect_ai.model import GenerateConfig, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, match, mean, scorer, stderr
from inspect_ai.solver import generate, solver

HERE = Path(__file__).parent
#: By model and question, the answers of three epochs.
ANSWERS = {
    "weak": {"a": "4 5 4", "b": "9 9 9", "c": "6 6 6", "d": "1 8 1", "e": "2 2 3"},
    "strong": {"a": "4 4 4", "b": "9 9 8", "c": "6 7 6", "d": "1 1 1", "e": "2 2 2"},
}
TARGETS = {"a": "4", "b": "9", "c": "7", "d": "1", "e": "2"}


@solver
def attempt():
    """Number the prompts, so that answers of epochs differ; question c fails in epoch 2."""

    async def solve(state, generate):
        if state.sample_id == "c" and state.epoch == 2:
            raise RuntimeError("the sandbox is gone")
        state.user_prompt.text += f" (attempt {state.epoch})"
        if state.sample_id == "e" and state.epoch == 3:
            state.message_limit = 1
        return state

    return solve


@scorer(metrics=[accuracy(), stderr()])
def closeness():
    """C for the answer, P for one beside it, N for a 1, I for others."""

    async def score(state, target):
        text = state.output.completion.strip()
        if text == "1":
            return Score(value="N", answer=text)
        if not text.isdigit():
            return Score(value=float("nan"))
        distance = abs(int(text) - int(target.text))
        return Score(value={0: "C", 1: "P"}.get(distance, "I"), answer=text)

    return score


@scorer(metrics={"short": [mean()], "digits": [mean()]})
def style():
    """Several values: whether the text is short, and half the share of digits in it."""

    async def score(state, target):
        text = state.output.completion.strip()
        digits = sum(c.isdigit() for c in text) / max(len(text), 1)
        return Score(value={"short": int(len(text) < 3), "digits": digits / 2})

    return score


def answering(name):
    def answer(input, tools, tool_choice, config):
        words = input[-1].text.split()
        text = ANSWERS[name][words[1]].split()[int(words[-1].rstrip(")")) - 1]
        output = ModelOutput.from_content("mockllm/" + name, text)
        output.usage = ModelUsage(
            input_tokens=8, output_tokens=len(text), total_tokens=8 + len(text)
        )
        return output

    return answer


def made(name, folder, **options):
    dataset = MemoryDataset(
        [
            Sample(
                f"Question {id} ?",
                target=target,
                id=id,
                metadata={"contest": "I" if id < "c" else "II"},
            )
            for id, target in TARGETS.items()
        ],
        name="letters",
    )
    task = Task(
        dataset=dataset,
        solver=[attempt(), generate()],
        scorer=[match(), closeness(), style()],
        epochs=3,
        message_limit=None,
        name="letters",
        version=2,
    )
    model = get_model(
        f"mockllm/{name}",
        custom_outputs=answering(name),
        config=GenerateConfig(temperature=0.6, max_tokens=64),
    )
    (log,) = eval(
        task,
        model=model,
        log_dir=str(folder),
        fail_on_error=False,
        display="none",
        max_samples=1,
        **options,
    )
    return log


def strip(content):
    """Leave out what no reader needs and what tells of the machine: events, traces, revisions."""
    if isinstance(content, list):
        return [strip(part) for part in content]
    if not isinstance(content, dict):
        return content
    dropped = {"traceback", "traceback_ansi"}
    kept = {k: "" if k in dropped else strip(v) for k, v in content.items() if k != "revision"}
    return {**kept, **{key: type(kept[key])() for key in ("events", "messages") if key in kept}}


def rewrite(file):
    with zipfile.ZipFile(file) as archive:
        entries = {name: json.loads(archive.read(name)) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", **zipfile_compress_kwargs) as archive:
        for name, content in entries.items():
            archive.writestr(name, json.dumps(strip(content)))


work = Path(tempfile.mkdtemp())
os.chdir(work)
for name in ANSWERS:
    log = made(name, work)
    shutil.copy(log.location, HERE / f"{name}.eval")
    log = read_eval_log(log.location)
    for score in log.results.scores:
        metrics = {metric: value.value for metric, value in score.metrics.items()}
        print(name, log.status, score.scorer, score.name, metrics)
    for sample in log.samples:
        values = {scorer: score.value for scorer, score in (sample.scores or {}).items()}
        print(" ", sample.id, sample.epoch, bool(sample.error), bool(sample.limit), values)
    rewrite(HERE / f"{name}.eval")
convert_eval_logs(str(HERE / "weak.eval"), "json", str(HERE), overwrite=True)
shutil.rmtree(work)
