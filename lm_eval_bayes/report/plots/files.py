"""The report's figures as files: their names, and writing them.

File names consist of a fixed word and a panel's number; names of models and tasks are untrusted
and never part of a path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_bayes._util.files import check_writable
from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.report.plots import figures
from lm_eval_bayes.report.plots.drawing import check_matplotlib, draw_as, write_figure_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("png", "svg")
#: Identifies a figure of this package, in its metadata.
MARK = "lm-eval-bayes"


@dataclass(frozen=True)
class FigureFile:
    """A figure and its file name.

    Attributes
    ----------
    name : str
        File name without the suffix, such as "leaderboard-1".
    task : str
        The task.
    draw : callable
        Draws it into a matplotlib figure.
    """

    name: str
    task: str
    draw: Callable[[Figure], None]

    def paths(self, folder: Path) -> tuple[Path, ...]:
        """Return the paths of its files."""
        return tuple(folder / f"{self.name}.{kind}" for kind in KINDS)


def report_figures(data: ReportData) -> tuple[FigureFile, ...]:
    """Return the figures of a report."""
    return tuple(figure for panel in data.panels for figure in _panel_figures(panel, data))


def _panel_figures(panel: TaskPanel, data: ReportData) -> list[FigureFile]:
    level = data.spec.level
    draws: dict[str, Callable[[Figure], None]] = {
        "leaderboard": partial(figures.leaderboard, panel=panel, level=level),
        "questions": partial(figures.questions, panel=panel, data=data),
    }
    if len(panel.models) > 1:
        draws["pairs"] = partial(figures.pairs, panel=panel)
    if any(curve is not None for curve in panel.curves):
        draws["convergence"] = partial(figures.convergence, panel=panel, level=level)
    if panel.costs:
        draws["cost"] = partial(figures.cost, panel=panel, level=level)
    if panel.rubrics is not None and len(panel.rubrics.classified.models) > 1:
        draws["rubrics"] = partial(figures.rubrics, table=panel.rubrics)
    return [FigureFile(f"{name}-{panel.number}", panel.task, draw) for name, draw in draws.items()]


def check_folder(folder: Path, overwrite: bool, argument: str = "--plots") -> None:
    """Raise, before any work, if figures cannot be written into a folder.

    Raises
    ------
    InvalidInputError
        If it is not a folder and cannot be created, or a file that is not a figure of this
        package has the name of one.
    LmEvalBayesError
        If matplotlib is not installed.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError.of(argument, "be a folder", str(folder))
    check_writable(folder / figures.NAMES[0], argument)
    check_matplotlib()
    for name in figures.NAMES:
        for kind in KINDS:
            for path in sorted(folder.glob(f"{name}-*.{kind}")):
                if not overwrite and not _is_own_figure(path):
                    rule = "have no other files with names of figures, unless --overwrite is given"
                    raise InvalidInputError.of(argument, rule, path.name)


def _is_own_figure(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            return MARK.encode() in file.read(4096)
    except OSError:
        return False


def write_figures(figure_files: Sequence[FigureFile], folder: Path) -> tuple[Path, ...]:
    """Write figures, each as PNG and as SVG; equal input gives the same bytes.

    Returns
    -------
    tuple of Path
        The files, which are written after all figures are drawn.
    """
    contents: dict[Path, bytes] = {}
    for figure_file in figure_files:
        drawn = draw_as(figure_file.draw, KINDS, creator=MARK)
        contents |= dict(zip(figure_file.paths(folder), drawn, strict=True))
    for path, content in contents.items():
        write_figure_file(content, path)
    return tuple(contents)
