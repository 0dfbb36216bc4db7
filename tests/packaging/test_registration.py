"""Registration in the real harness, each time in a fresh interpreter."""

from __future__ import annotations

import pytest


def output_of(result):
    assert result.returncode == 0, result.stderr
    assert "lm_eval_bayes" not in result.stderr, result.stderr
    return result.stdout.strip()


EVERYTHING = """
import sys
from lm_eval.api import registry
loaded = [m for m in sys.modules if m.partition(".")[0] in ("lm_eval_bayes", "scipy")]
assert len(loaded) <= 15 and "scipy" not in loaded, loaded
for name in ("bayes", "credible_interval", "rubric"):
    assert registry.get_metric(name).__module__ == "lm_eval_bayes.harness.plugin.metrics"
    assert registry.get_metric_aggregation(name) is registry.get_aggregation("bayes")
    assert registry.is_higher_better(name) is True
for name in "bayes avg_at_n pass_at_k pass_hat_k g_pass_at_k mg_pass_at_k maj_at_k".split():
    function = registry.get_aggregation(name)
    assert function.__module__ == "lm_eval_bayes.harness.plugin.aggregations"
    assert function.__name__ == name
keep_all = registry.get_filter("keep_all")
assert keep_all.__module__ == "lm_eval_bayes.harness.task.pipelines"
assert keep_all.__name__ == "KeepAllFilter"
assert registry.get_model("biased_coin").__name__ == "BiasedCoinLM"
assert callable(registry.get_metric("exact_match"))
assert callable(registry.get_aggregation("mean"))
assert registry.get_filter("take_first") and registry.get_model("dummy")
from lm_eval.tasks._index import TaskIndex
roots = []
TaskIndex._iter_yaml_files = lambda root: roots.append(str(root)) or []
from lm_eval.tasks import TaskManager
TaskManager()
assert len(roots) == 2 and roots[1].endswith("task_configs"), roots
assert sys.excepthook is sys.__excepthook__
"""


@pytest.mark.slow
def test_everything_after_nothing_but_importing_the_harness(python, site_folder):
    code = """
import sys, lm_eval
assert not any(m.startswith("lm_eval_bayes") for m in sys.modules)
import lm_eval.evaluator, lm_eval.models
assert "lm_eval_bayes.harness.models.biased_coin.model" not in sys.modules, "only when asked for"
"""
    assert output_of(python(code + EVERYTHING, start=site_folder)) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        "from lm_eval.api.registry import get_metric; assert get_metric('exact_match')",
        "from lm_eval.api.registry import get_model; get_model('dummy')",
        "import lm_eval.api.task",
        "import sys, lm_eval.tasks, lm_eval.models\n"
        "for name in [m for m in sys.modules if m.partition('.')[0] == 'lm_eval']:\n"
        "    del sys.modules[name]",
        "import importlib, lm_eval.filters, lm_eval.models, lm_eval.tasks\n"
        "for name in ('filters', 'models', 'tasks'): importlib.reload(getattr(lm_eval, name))",
    ],
    ids=["metric", "model", "task", "imported anew", "reloaded"],
)
def test_whatever_part_of_the_harness_comes_first(python, site_folder, first):
    code = f"{first}\nimport lm_eval.tasks, lm_eval.models\n"
    assert output_of(python(code + EVERYTHING, start=site_folder)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["plugin.metrics", "models.biased_coin"])
def test_importing_a_module_of_ours_first_takes_nothing_from_the_harness(python, module):
    """Without start-up files: the harness fills a registry only while it is empty."""
    code = f"""
    import lm_eval_bayes.harness.{module}
    from lm_eval.api import registry
    assert callable(registry.get_metric("exact_match"))
    assert callable(registry.get_aggregation("mean"))
    assert registry.get_model("dummy")
    """
    assert output_of(python(code, LM_EVAL_BAYES_AUTOLOAD="0")) == ""


@pytest.mark.slow
def test_the_command_line_by_hand(python):
    code = """
    import runpy, sys
    sys.argv = ["lm_eval_bayes", "ls", "--help"]
    try:
        runpy.run_module("lm_eval_bayes", run_name="__main__")
    except SystemExit as end:
        assert end.code in (0, None)
    """.replace("\n    ", "\n")
    out = output_of(python(code + EVERYTHING, LM_EVAL_BAYES_AUTOLOAD="0"))
    assert "tasks|groups|subtasks|tags" in out


def test_the_command_line_without_the_harness_is_one_sentence(python, tmp_path):
    code = """
    import sys
    sys.modules["lm_eval"] = None
    from lm_eval_bayes.harness.plugin import registration
    registration.run_harness()
    """
    result = python(code, LM_EVAL_BAYES_AUTOLOAD="0")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "pip install 'lm-eval>=0.4.12,<0.5'" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.4.11", "0.5.0"])
def test_an_unsupported_harness_is_left_alone_with_one_sentence(python, site_folder, version):
    pretend = f"""
import importlib.metadata
real = importlib.metadata.version
importlib.metadata.version = lambda name: "{version}" if name == "lm-eval" else real(name)
"""
    sentence = f"lm-eval {version} is not supported; needed is lm-eval>=0.4.12,<0.5"
    code = """
import lm_eval.tasks, lm_eval.models, lm_eval.evaluator
from lm_eval.api.registry import model_registry
from lm_eval.tasks._index import TaskIndex
assert "biased_coin" not in model_registry
assert not hasattr(TaskIndex.build, "__wrapped__")
"""
    result = python(pretend + code, start=site_folder)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.count(sentence) == len(result.stderr.splitlines()) == 1
    by_hand = "from lm_eval_bayes.harness.plugin import registration\nregistration.run_harness()"
    result = python(pretend + by_hand, LM_EVAL_BAYES_AUTOLOAD="0")
    assert (result.returncode, result.stderr) == (1, f"lm-eval-bayes: {sentence}\n")


@pytest.mark.slow
def test_the_users_folder_still_wins_and_ours_comes_once(python, site_folder, tmp_path):
    (tmp_path / "mine").mkdir()
    code = f"""
    from pathlib import Path
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._index import TaskIndex
    from lm_eval_bayes._util.files import task_configs_dir
    import lm_eval.tasks
    built_in, ours = Path(lm_eval.tasks.__file__).parent, task_configs_dir()
    mine = Path({str(tmp_path / "mine")!r})
    roots = []
    TaskIndex._iter_yaml_files = lambda root: roots.append(root) or []
    def read(**options):
        roots.clear(); TaskManager(**options); return list(roots)
    assert read() == [built_in, ours]
    assert read(include_path=str(mine)) == [built_in, ours, mine]
    assert read(include_path=[str(ours), mine]) == [built_in, ours, mine]
    assert read(include_path=str(mine), include_defaults=False) == [mine]
    roots.clear(); TaskIndex().build(p for p in (mine, built_in))
    assert roots == [mine, built_in, ours]
    roots.clear(); TaskIndex.build(paths=[mine], resolve_includes=False); assert roots == [mine]
    """
    assert output_of(python(code, start=site_folder)) == ""


@pytest.mark.slow
def test_a_name_that_another_package_has_taken(python, site_folder):
    code = """
    import lm_eval.api.metrics, lm_eval.api.registry as registry
    import lm_eval.api.filter
    @registry.register_filter("keep_all")
    class Theirs(lm_eval.api.filter.Filter): ...
    import lm_eval.tasks, lm_eval.models
    print(registry.get_filter("keep_all").__name__, registry.get_metric("bayes").__name__)
    """
    result = python(code, start=site_folder)
    assert (result.returncode, result.stdout.strip()) == (0, "Theirs bayes")
    assert result.stderr.count("another package has registered the filter `keep_all`") == 1
