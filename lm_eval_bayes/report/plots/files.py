"""Pictures of a report in a folder: what they are called, and how they get there.

Names come from a fixed list and a panel's number. What a model or a task is called is drawn into
a picture and is never part of a path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_bayes._util.files import check_writable
from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError
from lm_eval_bayes.report.plots import figures as pictures
from lm_eval_bayes.report.plots.drawing import figure_bytes, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("png", "svg")
#: What every picture of ours says of itself: by this a file is known as one.
MARK = "lm-eval-bayes"


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes
    ----------
    name : str
        Its file's name without the suffix, such as "leaderboard-1".
    task : str
        The task that it is about.
    draw : callable
        Draws it into a figure.
    """

    name: str
    task: str
    draw: Callable[[Figure], None]

    def paths(self, folder: Path) -> tuple[Path, ...]:
        """Return its files."""
        return tuple(folder / f"{self.name}.{kind}" for kind in KINDS)


def pictures_of(contents: ReportData) -> tuple[Picture, ...]:
    """Return the pictures that a report has."""
    return tuple(one for panel in contents.panels for one in _of_panel(panel, contents))


def _of_panel(panel: TaskPanel, contents: ReportData) -> list[Picture]:
    draws: dict[str, Callable[[Figure], None]] = {
        "leaderboard": partial(pictures.leaderboard, panel=panel, level=contents.spec.level),
        "questions": partial(pictures.questions, panel=panel, contents=contents),
    }
    if len(panel.models) > 1:
        draws["pairs"] = partial(pictures.pairs, panel=panel)
    if any(found is not None for found in panel.curves):
        draws["convergence"] = partial(pictures.convergence, panel=panel, level=contents.spec.level)
    if costs := panel.costs:
        draws["cost"] = partial(pictures.cost, panel=panel, costs=costs, level=contents.spec.level)
    if panel.rubrics is not None and len(panel.rubrics.classified.models) > 1:
        draws["rubrics"] = partial(pictures.rubrics, table=panel.rubrics)
    return [Picture(f"{name}-{panel.number}", panel.task, draw) for name, draw in draws.items()]


def check_folder(folder: Path, overwrite: bool, argument: str = "--plots") -> None:
    """Refuse, before any work, a folder that pictures could not be written into.

    Raises
    ------
    InvalidInputError
        If it is no folder and cannot become one, or holds somebody else's file of a name that
        pictures may have.
    LmEvalBayesError
        If matplotlib is not installed.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError.of(argument, "be a folder", str(folder))
    check_writable(folder / pictures.NAMES[0], argument)
    if find_spec("matplotlib") is None:
        raise LmEvalBayesError(
            "pictures need matplotlib, which is not installed: pip install 'lm-eval-bayes[plots]'"
        )
    for name in pictures.NAMES:
        for kind in KINDS:
            for path in sorted(folder.glob(f"{name}-*.{kind}")):
                if not overwrite and not _ours(path):
                    rule = "hold no other files of our names, unless --overwrite is given"
                    raise InvalidInputError.of(argument, rule, path.name)


def write_pictures(found: tuple[Picture, ...], folder: Path) -> tuple[Path, ...]:
    """Write pictures, each as PNG and as SVG; equal input gives the same bytes.

    Returns
    -------
    tuple of Path
        The files, which are written when all pictures are drawn.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn: dict[Path, bytes] = {}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams |= {"svg.hashsalt": MARK, "text.parse_math": False}
        for one in found:
            figure = Figure()
            FigureCanvasAgg(figure)
            one.draw(figure)
            for path, kind in zip(one.paths(folder), KINDS, strict=True):
                # no date and no version: the same numbers give the same file
                said = {"Date": None, "Creator": MARK} if kind == "svg" else {"Software": MARK}
                drawn[path] = figure_bytes(figure, kind, said)
    for path, content in drawn.items():
        write_picture(content, path)
    return tuple(drawn)


def _ours(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            return MARK.encode() in file.read(4096)
    except OSError:
        return False
