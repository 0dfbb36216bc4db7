"""Benchmarks of the Hugging Face hub, by the name of the harness's task.

A benchmark is a dataset whose `eval.yaml` names one or more tasks, and a result names both. The
task ids of GSM8K and GPQA are those under which results are listed. MathArena's task ids equal
the dataset's id, as in the `eval.yaml` of its AIME 2026, which is assumed for the older contests
too. A dataset without an `eval.yaml` has the task id "default".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from lm_eval_bayes.export.files import slug
from lm_eval_bayes.runs.task_run import TaskRun


@dataclass(frozen=True)
class Benchmark:
    """A benchmark on the hub.

    Attributes
    ----------
    file : str
        Name of its results file, without the suffix.
    dataset : str
        The dataset's id; "" if unknown.
    task_id : str
        The task's id in the dataset's `eval.yaml`; "" if unknown.
    aliases : tuple of str
        Other ids of the same dataset.
    """

    file: str
    dataset: str
    task_id: str
    aliases: tuple[str, ...] = ()


def _matharena(contest: str) -> Benchmark:
    return Benchmark(contest, f"MathArena/{contest}", f"MathArena/{contest}")


_GSM8K = Benchmark("gsm8k", "openai/gsm8k", "gsm8k", ("gsm8k",))
_GPQA = Benchmark("gpqa_diamond", "Idavidrein/gpqa", "diamond")

#: Benchmarks by task name.
KNOWN: Mapping[str, Benchmark] = MappingProxyType(
    {
        "aime24_bayes": Benchmark("aime_2024", "HuggingFaceH4/aime_2024", "default"),
        "aime25_bayes": _matharena("aime_2025"),
        "brumo25_bayes": _matharena("brumo_2025"),
        "hmmt_feb25_bayes": _matharena("hmmt_feb_2025"),
        "gsm8k": _GSM8K,
        "gsm8k_cot": _GSM8K,
        "gsm8k_cot_llama": _GSM8K,
        "gsm8k_cot_zeroshot": _GSM8K,
        "gpqa_diamond_cot_n_shot": _GPQA,
        "gpqa_diamond_cot_zeroshot": _GPQA,
        "gpqa_diamond_generative_n_shot": _GPQA,
        "gpqa_diamond_n_shot": _GPQA,
        "gpqa_diamond_zeroshot": _GPQA,
    }
)


def dataset_of(run: TaskRun) -> tuple[str, str]:
    """Return the dataset's id and configuration, "" if they were not recorded.

    Examples
    --------
    >>> from lm_eval_bayes.runs.task_run import Provenance
    >>> provenance = Provenance(dataset="openai/gsm8k", config={"dataset_path": "openai/gsm8k"})
    >>> run = TaskRun.from_trials("A", "gsm8k", [[1]], ["q"], provenance=provenance)
    >>> dataset_of(run)
    ('openai/gsm8k', '')
    >>> provenance = Provenance(dataset="openai/gsm8k/main")
    >>> dataset_of(TaskRun.from_trials("A", "gsm8k", [[1]], ["q"], provenance=provenance))
    ('openai/gsm8k', 'main')
    """
    path, name = (
        run.provenance.config.get("dataset_path"),
        run.provenance.config.get("dataset_name"),
    )
    if not isinstance(path, str) or not path:
        # org/dataset/configuration
        parts = run.provenance.dataset.split("/", 2)
        path, name = "/".join(parts[:2]), parts[2] if len(parts) > 2 else ""
    return path, name if isinstance(name, str) else ""


def benchmark_of(run: TaskRun) -> Benchmark:
    """Return the benchmark of a run; of unknown tasks, one made from the run.

    A task with the name of a known one but another dataset is not that benchmark.

    Examples
    --------
    >>> benchmark_of(TaskRun.from_trials("A", "aime25_bayes", [[1]], ["q"])).file
    'aime_2025'
    >>> benchmark_of(TaskRun.from_trials("A", "My Task", [[1]], ["q"]))
    Benchmark(file='my_task-95852872', dataset='', task_id='', aliases=())
    """
    listed, (dataset, _) = KNOWN.get(run.task), dataset_of(run)
    if listed is not None and dataset in ("", listed.dataset, *listed.aliases):
        return listed
    own = Benchmark(slug(run.task), dataset, "")
    taken = listed is not None or own.file in {benchmark.file for benchmark in KNOWN.values()}
    return replace(own, file=f"{own.file}-own") if taken else own
