"""Files of JSON objects, one per line, and the fields of the lines of a samples file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.readers.protocol import Advance

#: Fields of the document of a question that hold its text; without one the prompt is the question.
_QUESTION_FIELDS = ("problem", "question", "Question", "query", "goal", "sentence")

#: The fields of a line besides its metrics.
NO_METRICS = frozenset(
    (
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
        *("doc_hash", "prompt_hash", "target_hash", "outcomes", "answers", "lengths", "signals"),
        *("grading_error_notes",),
    )
)


class JsonLines:
    """A file of JSON objects, one per line, of which one line at a time is held in memory.

    Parameters
    ----------
    file : Path
        The file.
    argument : str
        The name of the argument in an error.
    advance : callable, optional
        Called with the bytes of every line.

    Attributes
    ----------
    offset : int
        The byte at which the current line begins.
    warnings : tuple of str
        After the last line: whether it is cut off, as by a kill, and was left out.
    """

    def __init__(self, file: Path, argument: str, advance: Advance | None = None) -> None:
        self.file, self.argument, self.advance = file, argument, advance
        self.offset = 0
        self.warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the objects.

        Raises
        ------
        InvalidInputError
            If a line cannot be read, or the only one is cut off.
        """
        cut_off, n_rows, end = "", 0, 0
        try:
            with self.file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if cut_off:
                        raise self._broken(cut_off)
                    self.offset, end = end, end + len(line)
                    if self.advance is not None:
                        self.advance(len(line))
                    if line.isspace():
                        continue
                    try:
                        row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                    except (ValueError, RecursionError) as error:
                        cut_off = f"line {number}: {getattr(error, 'msg', None) or error}"
                        if line.endswith(b"\n"):
                            raise self._broken(cut_off) from None
                        continue
                    if not isinstance(row, dict):
                        raise self._broken(f"line {number} is not an object")
                    n_rows += 1
                    yield row
        except OSError as error:
            raise self._broken(error.strerror or str(error)) from None
        if cut_off and not n_rows:
            raise self._broken(cut_off)
        if cut_off:
            warning = f"{self.file} ends in the middle of line {number}; that line was left out"
            self.warnings = (warning,)

    def _broken(self, reason: str) -> InvalidInputError:
        return InvalidInputError.of(self.argument, f"have a complete {self.file.name}", reason)


def first_line(file: Path) -> dict[str, Any] | None:
    """Return the first object of a file; None where there is none, or it cannot be read."""
    try:
        return next(iter(JsonLines(file, "RUN")), None)
    except InvalidInputError:
        return None


def document_hash(row: Mapping[str, Any]) -> str:
    """Return the hash of the document of a question, computed as by the harness if missing."""
    logged = row.get("doc_hash")
    if isinstance(logged, str) and logged:
        return logged
    return sha256_text(json.dumps(row.get("doc"), indent=2, ensure_ascii=False))


def prompt_and_settings(row: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the prompt of a question, and the generation settings that were sent with it.

    The settings are None where nothing was generated.

    Examples
    --------
    >>> named = {"gen_args_0": {"arg_0": "1+1=", "arg_1": {"until": []}}}
    >>> prompt_and_settings({"arguments": named})
    ('1+1=', {'until': []})
    >>> prompt_and_settings({"arguments": [["1+1=", " 2"], ["1+1=", " 3"]]})
    ('1+1=', None)
    """
    arguments = row.get("arguments")
    first: Any = None
    if isinstance(arguments, Mapping):
        named = arguments.get("gen_args_0")
        first = [named.get("arg_0"), named.get("arg_1")] if isinstance(named, Mapping) else None
    elif isinstance(arguments, list) and arguments:
        first = arguments[0]
    if not isinstance(first, list) or not first:
        return "", None
    prompt = first[0] if isinstance(first[0], str) else ""
    sent = first[1] if len(first) > 1 and isinstance(first[1], dict) else None
    return prompt, sent


def question_text(row: Mapping[str, Any], prompt: str) -> str:
    """Return the text of the question; of a document without one, the prompt."""
    doc = row.get("doc")
    if isinstance(doc, Mapping):
        for name in _QUESTION_FIELDS:
            text = doc.get(name)
            if isinstance(text, str) and text.strip():
                return text.strip()
    return prompt.strip()


def prompt_hash(row: Mapping[str, Any], prompt: str) -> str:
    """Return the hash of the prompt of a question, "" where there is none."""
    logged = row.get("prompt_hash")
    if isinstance(logged, str):
        return logged
    return sha256_text(prompt) if prompt else ""


def texts(row: Mapping[str, Any]) -> list[str] | None:
    """Return the texts that were generated for a question, None where there are none."""
    responses = row.get("resps")
    if (
        not isinstance(responses, list)
        or len(responses) != 1
        or not isinstance(responses[0], list)
        or not all(isinstance(text, str) for text in responses[0])
    ):
        return None
    return responses[0]


def metrics(row: Mapping[str, Any]) -> list[str]:
    """Return the names of the metrics of a line; older harnesses do not list them."""
    listed = row.get("metrics")
    if isinstance(listed, list):
        return [name for name in listed if isinstance(name, str) and name in row]
    return [name for name in row if name not in NO_METRICS]


def right_or_wrong(value: object) -> int | None:
    """Return 0 or 1, -1 for an ungraded trial, None for any other value.

    Examples
    --------
    >>> [right_or_wrong(value) for value in (True, 0.0, None, 0.5, "1")]
    [1, 0, -1, None, None]
    """
    if value is None:
        return -1
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        return int(value)
    return None
