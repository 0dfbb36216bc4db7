"""Where the task files are looked for."""

from __future__ import annotations

from pathlib import Path

from _support.errors import refused

from lm_eval_bayes._util.files import task_configs_dir
from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.harness.plugin.sampled_tasks import with_our_tasks


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_a_wheel_has_them_inside(tmp_path):
    inside = folder(tmp_path / "lm_eval_bayes" / "task_configs")
    folder(tmp_path / "task_configs")
    (tmp_path / "pyproject.toml").touch()
    assert task_configs_dir(tmp_path / "lm_eval_bayes") == inside


def test_a_checkout_has_them_beside(tmp_path):
    beside = folder(tmp_path / "task_configs")
    (tmp_path / "pyproject.toml").touch()
    assert task_configs_dir(tmp_path / "lm_eval_bayes") == beside


def test_a_strangers_folder_in_site_packages_is_not_ours(tmp_path):
    folder(tmp_path / "task_configs")
    with refused("task_configs", "path", error=LmEvalBayesError):
        task_configs_dir(tmp_path / "lm_eval_bayes")


def test_symbolic_links_do_not_hide_that_a_folder_is_there(tmp_path):
    built_in, ours = folder(tmp_path / "built_in"), folder(tmp_path / "ours")
    (tmp_path / "link").symlink_to(built_in)
    (tmp_path / "ours_too").symlink_to(ours)
    link, ours_too = tmp_path / "link", tmp_path / "ours_too"
    assert with_our_tasks([link, "user"], built_in, ours) == [link, ours, "user"]
    assert with_our_tasks([built_in, str(ours_too)], built_in, ours) == [built_in, str(ours_too)]
    assert with_our_tasks([], built_in, ours) == []
