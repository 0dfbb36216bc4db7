"""What the pictures of this package have in common: colours, names, and how a file is written."""

from __future__ import annotations

import io
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_bayes._util.files import check_writable, write_atomic
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What a picture's name may end with.
SUFFIXES = (".svg", ".png")

#: Okabe and Ito's colours, which colour-blind people tell apart, without yellow and with grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#595959")
#: With the colours 28 different lines; the number of both has no common divisor.
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
TEXT = "#222222"
_LONGEST_NAME = 40


def check_picture(path: Path, argument: str = "plot") -> None:
    """Refuse, before any work, a picture that could not be drawn.

    Raises
    ------
    InvalidInputError
        If the name ends with no kind of picture, its folder cannot be made, or something else
        than a picture is there.
    LmEvalBayesError
        If matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInputError.of(argument, f"end with {' or '.join(SUFFIXES)}", path.name)
    check_writable(path, argument)
    if os.path.lexists(path) and not _is_picture(path):
        rule = "be a new file or a picture, which is then replaced"
        raise InvalidInputError.of(argument, rule, str(path))
    if find_spec("matplotlib") is None:
        raise LmEvalBayesError(
            "a picture needs matplotlib, which is not installed: pip install 'lm-eval-bayes[plots]'"
        )


def _is_picture(path: Path) -> bool:
    """Return whether a file begins as pictures do."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            begin = file.read(512)
    except OSError:
        return False
    if path.suffix.lower() == ".png":
        return begin.startswith(b"\x89PNG")
    return begin.lstrip().startswith((b"<?xml", b"<svg"))


def short_name(name: str) -> str:
    """Leave out the middle of a long name."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME // 2 - 1]}…{name[-_LONGEST_NAME // 2 :]}"


def write_figure(figure: Figure, path: Path, kind: str, metadata: dict[str, Any]) -> None:
    """Draw a figure into a file.

    Parameters
    ----------
    figure : Figure
        With its canvas.
    path : Path
        The file, which is replaced.
    kind : str
        "svg" or "png".
    metadata : dict
        What the file says of itself.

    Raises
    ------
    InvalidInputError
        If it cannot be written.
    """
    write_picture(figure_bytes(figure, kind, metadata), path)


def figure_bytes(figure: Figure, kind: str, metadata: dict[str, Any]) -> bytes:
    """Return what the file of a figure holds, see :func:`write_figure`."""
    import warnings

    drawn = io.BytesIO()
    with warnings.catch_warnings():
        # a name in letters that the font has not is drawn with boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(drawn, format=kind, dpi=160, bbox_inches="tight", metadata=metadata)
    return drawn.getvalue()


def write_picture(content: bytes, path: Path) -> None:
    """Write a picture under a temporary name, and give it its own when it is whole.

    Raises
    ------
    InvalidInputError
        If it cannot be written.
    """
    try:
        write_atomic(path, content)
    except OSError as error:
        rule = f"be a file that can be written; {path}: {error.strerror}"
        raise InvalidInputError.of("plot", rule, path.name) from None
