"""Make the details of lighteval in this folder: in an environment with lighteval 0.13.0, run this.

The model is a custom one whose answers are set here: nothing is asked over a network. What the tool
itself computed is printed, for the tests.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
#: By model and question, the answers of four generations; 7, 8, 9 and 4 are right.
ANSWERS = {
    "strong": ["7 7 7 7", "8 8 8 0", "9 0 9 0", "4 4 4 4", "5 6 5 0"],
    "weak": ["7 0 0 0", "0 0 0 0", "9 0 9 0", "4 4 0 4", "0 5 0 0"],
}
RIGHT = [7, 8, 9, 4, 5]

TASKS = """
from lighteval.metrics.metrics import Metrics
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.requests import Doc


def prompt(line, task_name=None):
    return Doc(
        task_name=task_name, query=line["question"], choices=[line["answer"]], gold_index=0
    )


def config(name, metrics):
    return LightevalTaskConfig(
        name=name, prompt_function=prompt, hf_repo="sums", hf_subset="default",
        hf_avail_splits=["train"], evaluation_splits=["train"], few_shots_split=None,
        few_shots_select=None, generation_size=16, metrics=metrics, stop_sequence=[], version=1,
    )


TASKS_TABLE = [
    config("sums", [
        Metrics.avg_at_n(sample_params={"n": 4}), Metrics.pass_at_k(sample_params={"k": 1, "n": 4}),
        Metrics.pass_at_k(sample_params={"k": 2, "n": 4}), Metrics.maj_at_n(sample_params={"n": 4}),
    ]),
    config("once", [Metrics.exact_match, Metrics.f1_score]),
]
"""

MODEL = """
import json
import re
from lighteval.models.abstract_model import LightevalModel
from lighteval.models.model_output import ModelResponse
from lighteval.utils.cache_management import SampleCache

ANSWERS = json.load(open("answers.json"))


class Scripted(LightevalModel):
    def __init__(self, config):
        self.config = config
        self._tokenizer = None
        self._cache = SampleCache(config)

    @property
    def tokenizer(self):
        return None

    def tok_encode(self, text):
        return []

    @property
    def add_special_tokens(self):
        return False

    @property
    def max_length(self):
        return 128

    def greedy_until(self, docs):
        responses = []
        for doc in docs:
            number = int(re.search("Question ([0-9])", doc.query)[1])
            texts = ANSWERS[self.config.model_name][number].split()[: doc.num_samples]
            responses.append(
                ModelResponse(input=doc.query, text=texts, output_tokens=[[1, 2]] * len(texts))
            )
        return responses

    def loglikelihood(self, docs):
        raise NotImplementedError

    def loglikelihood_rolling(self, docs):
        raise NotImplementedError
"""


work = Path(tempfile.mkdtemp())
os.chdir(work)
Path("sums").mkdir()
lines = [
    json.dumps({"question": f"Question {n}: {right - 1} + 1 =", "answer": str(right)})
    for n, right in enumerate(RIGHT)
]
Path("sums/train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
Path("tasks_of_sums.py").write_text(TASKS, encoding="utf-8")
Path("scripted.py").write_text(MODEL, encoding="utf-8")
Path("answers.json").write_text(json.dumps(ANSWERS), encoding="utf-8")

from lighteval.logging.evaluation_tracker import EvaluationTracker
from lighteval.models.custom.custom_model import CustomModelConfig
from lighteval.pipeline import ParallelismManager, Pipeline, PipelineParameters
from lighteval.tasks.registry import Registry

# its own tasks, some of which ask the network when they are loaded, are not needed
Registry._load_from_files = Registry._load_from_subdirs = staticmethod(lambda *args: {})
for model in ANSWERS:
    tracker = EvaluationTracker(output_dir=str(work / "out"), save_details=True)
    pipeline = Pipeline(
        tasks="sums|0,once|0",
        pipeline_parameters=PipelineParameters(
            launcher_type=ParallelismManager.CUSTOM, custom_tasks_directory="tasks_of_sums.py"
        ),
        evaluation_tracker=tracker,
        model_config=CustomModelConfig(model_name=model, model_definition_file_path="scripted.py"),
    )
    pipeline.evaluate()
    pipeline.save_and_push_results()
    print(model, json.dumps(pipeline.get_results()["results"]))
for folder in ("details", "results"):
    shutil.rmtree(HERE / folder, ignore_errors=True)
    shutil.copytree(work / "out" / folder, HERE / folder)
for file in (HERE / "details").rglob("*|*"):  # a name that not every system allows
    file.rename(file.with_name(file.name.replace("|", "_")))
shutil.rmtree(work)
