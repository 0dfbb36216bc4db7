"""Colours, checks and file writing shared by all figures."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_bayes._util.files import check_writable, write_atomic, write_errors
from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes._util.text import shorten_middle
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: File name suffixes of figures.
SUFFIXES = (".svg", ".png")

#: The colours of Okabe and Ito, distinguishable by colour-blind readers; grey for yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#595959")
#: With the colours 28 distinct line styles, since 7 and 4 have no common divisor.
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
TEXT = "#222222"
_MAX_NAME = 40


def check_figure_path(path: Path) -> None:
    """Raise, before any work, if a figure cannot be written to a path.

    Raises
    ------
    InvalidInputError
        If the suffix is not that of a figure, the folder cannot be created, or the path is a file
        that is not a figure.
    LmEvalBayesError
        If matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        got = path.name
        raise InvalidInputError.of("--plot", "format", f"end with {' or '.join(SUFFIXES)}", got)
    check_writable(path, "--plot")
    if os.path.lexists(path) and not _is_figure(path):
        rule = "be a new file or a figure, which is then replaced"
        raise InvalidInputError.of("--plot", "path", rule, str(path))
    check_matplotlib()


def check_matplotlib() -> None:
    """Raise unless matplotlib is installed.

    Raises
    ------
    LmEvalBayesError
        If it is not.
    """
    if find_spec("matplotlib") is None:
        raise LmEvalBayesError(
            "figures need matplotlib, which is not installed: " + pip_install_extra("plots"),
            "not-installed",
            "matplotlib",
        )


def file_start(path: Path) -> bytes:
    """Return the first bytes of a file; none of what is no file or cannot be read."""
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def _is_figure(path: Path) -> bool:
    """Return whether a file begins like a PNG or SVG file."""
    start = file_start(path)
    if path.suffix.lower() == ".png":
        return start.startswith(b"\x89PNG")
    return start.lstrip().startswith((b"<?xml", b"<svg"))


def short_name(name: str) -> str:
    """Return a name without its middle if it is long."""
    return shorten_middle(name, _MAX_NAME)


def draw_as(
    draw: Callable[[Figure], None], kinds: Sequence[str], *, creator: str | None = None
) -> list[bytes]:
    """Draw a figure and return its files; equal input gives the same bytes.

    Parameters
    ----------
    draw : callable
        Draws into an empty matplotlib figure.
    kinds : sequence of {"svg", "png"}
        The formats.
    creator : str, optional
        Recorded in the metadata, which has neither a date nor a version.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # element ids of an SVG follow from the salt; a dollar in a name is a dollar
        matplotlib.rcParams |= {"svg.hashsalt": "lm-eval-bayes", "text.parse_math": False}
        figure = Figure()
        FigureCanvasAgg(figure)
        draw(figure)
        return [_figure_bytes(figure, kind, creator) for kind in kinds]


def draw_file(path: Path, draw: Callable[[Figure], None]) -> None:
    """Draw a figure and write it to a path, .svg or .png; equal input gives the same bytes.

    `check_figure_path` refuses a wrong path before any work.

    Raises
    ------
    InvalidInputError
        If the figure cannot be written.
    """
    (content,) = draw_as(draw, [path.suffix.lower().removeprefix(".")])
    write_figure_file(content, path)


def _figure_bytes(figure: Figure, kind: str, creator: str | None) -> bytes:
    metadata = {"Date": None, "Creator": creator} if kind == "svg" else {"Software": creator}
    content = io.BytesIO()
    with warnings.catch_warnings():
        # characters that the font lacks are drawn as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(content, format=kind, dpi=160, bbox_inches="tight", metadata=metadata)
    return content.getvalue()


def write_figure_file(content: bytes, path: Path) -> None:
    """Write the file of a figure atomically.

    Raises
    ------
    InvalidInputError
        If it cannot be written.
    """
    with write_errors("plot"):
        write_atomic(path, content)
