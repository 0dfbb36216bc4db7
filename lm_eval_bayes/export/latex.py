r"""Tables and names in LaTeX, which pdflatex, xelatex and lualatex compile.

A table that is wider than the text is scaled down to its width. Of characters that pdflatex does
not have it prints the code point, such as [U+6578]; xelatex and lualatex print the character, if
their font has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lm_eval_bayes._util.text import one_line

#: Characters with a name, which stands for them.
_NAMES = {
    "\\": "backslash",
    "~": "asciitilde",
    "^": "asciicircum",
    "<": "less",
    ">": "greater",
    "|": "bar",
    '"': "quotedbl",
    "`": "asciigrave",
    "'": "quotesingle",
}
_ESCAPES = str.maketrans(
    {c: rf"\text{name}{{}}" for c, name in _NAMES.items()}
    | {c: rf"\{c}" for c in "{}$&%#_"}
    # no optional argument or star of a line break
    | {c: f"{{{c}}}" for c in "[]*"}
    # no ligatures to dashes and inverted marks
    | {c: f"{c}{{}}" for c in "-?!"}
)
#: What pdflatex has beyond ASCII, with the encoding T1.
_OF_PDFLATEX = frozenset(
    "¡¢£¤¥¦§¨©ª«¬®¯°±²³´µ¶·¸¹º»¼½¾¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖ×ØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõö÷øùúûüýþÿ"
    "ĂăĄąĆćČčĎďĐđĒēĖėĘęĚěĞğĪīĮįİıĶķĹĺĻļĽľŁłŃńŅņŇňŐőŒœŔŕŘřŚśŞşŠšŢţŤťŪūŮůŰűŲųŸŹźŻżŽž–—‘’“”†‡•…‰€™"
)
#: A character and its code point; the engine that compiles it decides.
_FOREIGN = r"{\ifdefined\XeTeXversion %(c)s\else\ifdefined\directlua %(c)s\else [U+%(n)04X]\fi\fi}"


def latex_cell(text: object) -> str:
    r"""Return a text escaped for a cell of a LaTeX table.

    Examples
    --------
    >>> print(latex_cell("50%_a & \\input{x}"))
    50\%\_a \& \textbackslash{}input\{x\}
    >>> print(latex_cell("Größe 數").replace("else", "\nelse"))
    Größe {\ifdefined\XeTeXversion 數\
    else\ifdefined\directlua 數\
    else [U+6578]\fi\fi}
    """
    escaped = re.sub(r"-\{\}(?!-)", "-", one_line(text).translate(_ESCAPES))
    foreign = _foreign(escaped)
    return "".join(_FOREIGN % {"c": c, "n": ord(c)} if c in foreign else c for c in escaped)


def latex_paragraph(text: object) -> str:
    r"""Return a text escaped for a paragraph, in which names without spaces may be broken.

    Examples
    --------
    >>> print(latex_paragraph("org/model-7B"))
    org/\allowbreak{}model-\allowbreak{}7B
    """
    pieces = re.findall(r"\s+|[^\s/_.,:=-]{1,8}[/_.,:=-]{0,8}|[/_.,:=-]{1,8}", one_line(text))
    return "".join(
        latex_cell(piece) + (r"\allowbreak{}" if not following.isspace() and following else "")
        if not piece.isspace()
        else piece
        for piece, following in zip(pieces, [*pieces[1:], ""], strict=True)
    )


def names_beyond_pdflatex(names: Iterable[str]) -> list[str]:
    """Return the names with characters that pdflatex does not have.

    Examples
    --------
    >>> names_beyond_pdflatex(["Größe", "數", "GPT-4"])
    ['數']
    """
    return [name for name in names if _foreign(one_line(name))]


def latex_head(tables: str) -> str:
    """Return what stands before tables: which packages they need, and which compiler."""
    packages = "% Needs \\usepackage{booktabs,graphicx}, and \\usepackage[T1]{fontenc}.\n"
    if "[U+" not in tables:
        return packages
    return (
        f"{packages}% Some names have characters that pdflatex does not have, and prints as code "
        "points;\n% xelatex and lualatex print them in a font that has them (\\setmainfont).\n"
    )


def latex_table(
    cells: Sequence[Sequence[str]], alignment: Sequence[str], title: str, caption: str
) -> str:
    """Return a table, at most as wide as the text.

    Parameters
    ----------
    cells : sequence of sequences of str
        The heading and the rows, escaped.
    alignment : sequence of {"l", "r", "c"}
        Of the columns.
    title, caption : str
        The caption, escaped; a list of tables has the title alone.
    """
    heading, *rows = [f"    {' & '.join(line)} \\\\" for line in cells]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            f"  \\caption[{title}]{{{title}. {caption}}}",
            r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"  \begin{{tabular}}{{{''.join(alignment)}}}",
            r"    \toprule",
            heading,
            r"    \midrule",
            *rows,
            r"    \bottomrule",
            r"  \end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _foreign(text: str) -> set[str]:
    """Return the characters that pdflatex does not have."""
    return set() if text.isascii() else {c for c in text if c > "~" and c not in _OF_PDFLATEX}
