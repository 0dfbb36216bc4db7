"""Where the task YAMLs lie: the one resolver for wheels and for checkouts."""

from __future__ import annotations

from pathlib import Path

from lm_eval_bayes.errors import LmEvalBayesError


def task_configs_dir() -> Path:
    """Return the folder of task YAMLs that belongs to this copy of the package.

    A wheel carries it inside the package; in a checkout, so in an editable install, it lies
    beside the package.

    Returns
    -------
    pathlib.Path
        An existing folder, absolute.

    Raises
    ------
    LmEvalBayesError
        If neither folder exists, so the installation is damaged (or lies in a zip file,
        which the harness cannot read tasks from).

    Examples
    --------
    >>> task_configs_dir().name
    'task_configs'
    """
    return find_task_configs(Path(__file__).resolve().parents[1])


def find_task_configs(package: Path) -> Path:
    """Return the task folder of the package at `package`; see `task_configs_dir`."""
    inside = package / "task_configs"
    if inside.is_dir():
        return inside
    checkout = package.parent
    beside = checkout / "task_configs"
    # In site-packages, a stranger's folder could have this name; a checkout has its metadata too.
    if beside.is_dir() and (checkout / "pyproject.toml").is_file():
        return beside
    raise LmEvalBayesError(
        f"the task files of lm_eval_bayes must lie in {inside} (installed) or {beside} "
        "(checkout); found neither, so please install the package again"
    )
