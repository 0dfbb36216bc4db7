"""Texts of trials in other tools' logs: read on demand, one question at a time.

A log is a sequence of records, such as lines, of which each holds one trial or several. A place in
it is a number of both. Only places are held in memory. Of a log that can be read at any place, as
lines that are not compressed, the records that are asked for are read again. Others, as one JSON
document, are read again once, when a text is first asked for, into a temporary file.

Conversations with users and tools are one text.
"""

from __future__ import annotations

import json
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import UNREADABLE
from lm_eval_bayes._util.text import replace_surrogates
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import mapping, mappings
from lm_eval_bayes.runs.logged_texts import PER_RECORD, TextLog, TrialText
from lm_eval_bayes.runs.readers.json_files import json_text, name_of
from lm_eval_bayes.runs.readers.text_files import JsonLines

#: What reading a record again may raise where it is another one.
_UNLIKE_BEFORE = (*UNREADABLE, ValueError, TypeError, AttributeError, LookupError, RecursionError)

#: Returns the texts of the trials of a record.
TextsOf = Callable[[Mapping[str, Any]], Sequence[TrialText]]


def place_of(record: int, trial: int = 0) -> int:
    """Return the place of a trial: the number of its record, and its own in that.

    Examples
    --------
    >>> divmod(place_of(3, 2), PER_RECORD)
    (3, 2)
    """
    return record * PER_RECORD + trial


class Records:
    """A log of which records are read one by one.

    Parameters
    ----------
    files : sequence of Path
        The files; that they are unchanged is checked before they are read again.
    grows : bool
        Whether more may be appended to a file while it is read.
    """

    def __init__(self, files: Sequence[Path], grows: bool = False) -> None:
        self.files, self.grows = files, grows
        self._states = [_state(file) for file in files]
        self._last: tuple[int, Sequence[TrialText]] = (-1, ())

    def read(self, places: Sequence[int]) -> list[TrialText]:
        """Return the texts at some places.

        Raises
        ------
        InvalidInputError
            If the log is no longer what was read before.
        """
        texts: list[TrialText] = []
        try:
            for number, trial in (divmod(at, PER_RECORD) for at in places):
                if number != self._last[0]:
                    self._last = number, self.record(number)
                texts += self._last[1][trial : trial + 1] or [TrialText(None)]
        except InvalidInputError:
            raise
        except _UNLIKE_BEFORE as error:
            raise self.changed(getattr(error, "strerror", None) or str(error)) from None
        return texts

    def record(self, number: int) -> Sequence[TrialText]:
        """Return the texts of a record."""
        raise NotImplementedError

    def check(self, number: int = 0) -> Path:
        """Return a file.

        Raises
        ------
        InvalidInputError
            If it is another than before.
        """
        file, before = self.files[number], self._states[number]
        now = _state(file)
        has_grown = self.grows and now and before and now[0] == before[0] and now[1] > before[1]
        if now != before and not has_grown:
            raise self.changed("other content" if now else "no file", file)
        return file

    def changed(self, got: str, file: Path | None = None) -> InvalidInputError:
        """Return the error of a log that is no longer what was read before."""
        rule = f"be unchanged while it is read ({file or self.files[0]})"
        return InvalidInputError.of("RUN", "damaged", rule, got)


def _state(file: Path) -> tuple[tuple[int, int], int, int] | None:
    """Return what tells a file from another at its path: its inode, size and time."""
    try:
        status = file.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns


class LineRecords(Records):
    """Lines of JSON, not compressed, of which only the wanted ones are read again.

    Parameters
    ----------
    lines : JsonLines
        The lines, which were read.
    texts_of : callable
        Returns the texts of a line.
    """

    def __init__(self, lines: JsonLines, texts_of: TextsOf) -> None:
        super().__init__([lines.file], grows=True)
        self.offsets, self.texts_of = lines.offsets, texts_of

    def record(self, number: int) -> Sequence[TrialText]:
        """Return the texts of a line."""
        with self.check().open("rb") as file:
            file.seek(self.offsets[number])
            return self.texts_of(json.loads(file.readline().decode("utf-8-sig")))


class SpooledRecords(Records):
    """A log that is read as a whole, once, into a temporary file.

    Parameters
    ----------
    *files : Path
        The files.
    records : callable
        Reads the file again and returns the texts of every record, in the order of their numbers.
    """

    def __init__(self, *files: Path, records: Callable[[], Iterable[Sequence[TrialText]]]) -> None:
        super().__init__(files)
        self.records = records
        self._offsets: array[int] | None = None

    def record(self, number: int) -> Sequence[TrialText]:
        """Return the texts of a record."""
        if self._offsets is None:
            self._offsets = self._spooled()
        self._file.seek(self._offsets[number])
        rows = json.loads(self._file.readline())
        return [TrialText(text, tuple(right), damaged) for text, right, damaged in rows]

    def _spooled(self) -> array[int]:
        """Write the texts to a temporary file; return where every record is."""
        for number in range(len(self.files)):
            self.check(number)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        offsets = array("q")
        for texts in self.records():
            offsets.append(self._file.tell())
            self._file.write(json.dumps(texts).encode() + b"\n")
        return offsets


def texts_log(
    file: Path,
    rows: Iterable[Mapping[str, Any]],
    texts_of: TextsOf,
    again: Callable[[], Iterable[Mapping[str, Any]]] | None = None,
) -> TextLog:
    """Return the texts of a file, after its rows were read.

    Parameters
    ----------
    file : Path
        The file.
    rows : iterable of mapping
        Its rows, each a record. Those of JSON lines are found by their places.
    texts_of : callable
        Returns the texts of a row.
    again : callable, optional
        Reads the rows again, by default as JSON lines; called for a file that is not read at any
        place.
    """
    if isinstance(rows, JsonLines) and rows.random_access:
        return LineRecords(rows, texts_of)
    read = again or partial(JsonLines, file, unique_keys=False)
    return SpooledRecords(file, records=lambda: map(texts_of, read()))


def one_text(text: object, *right_answers: object) -> list[TrialText]:
    """Return the text of a record with one trial.

    Parameters
    ----------
    text : object
        What the model wrote; anything but a text counts as not logged.
    *right_answers : object
        Texts, numbers, or lists of them; others are left out.

    Examples
    --------
    >>> one_text("so 7", [7, "7.0"], None)
    [TrialText(text='so 7', right_answers=('7', '7.0'), damaged=False)]
    >>> one_text(None)[0].text is None
    True
    """
    right: list[str] = []
    for given in right_answers:
        for answer in given if isinstance(given, list) else [given]:
            right.append(str(answer).lower() if isinstance(answer, bool) else name_of(answer))
    return [TrialText(text if isinstance(text, str) else None, tuple(filter(None, right)))]


#: Keys of the parts of a message that hold text.
_PARTS = ("text", "reasoning", "thinking", "refusal")


def written(messages: object) -> str | None:
    """Return what was written after the prompt of a conversation.

    Parameters
    ----------
    messages : object
        A text, or a list of messages with their roles: the prompt, and everything from the first
        message of the assistant on that is no part of it.

    Returns
    -------
    str or None
        The text of the only reply; of a longer conversation all messages, each below its role in
        brackets. None where there is no reply.

    Examples
    --------
    >>> asked, replied = {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}
    >>> written([asked, replied]), written([asked]), written("2")
    ('2', None, '2')
    >>> print(written([asked, replied, {"role": "user", "content": "Sure?"}]))
    [assistant]
    2
    <BLANKLINE>
    [user]
    Sure?
    """
    if isinstance(messages, str):
        return messages
    listed = mappings(messages)
    # inspect_ai says which messages were given
    of_model = [m.get("role") == "assistant" and m.get("source") != "input" for m in listed]
    if not any(of_model):
        return None
    replies = listed[of_model.index(True) :]
    if len(replies) == 1:
        return _text(replies[0])
    return "\n\n".join(f"[{_role(message)}]\n{_text(message)}" for message in replies)


def last_message(content: object) -> str:
    """Return a text, or the text of the last user message of a conversation; "" for others.

    Examples
    --------
    >>> last_message("1+1?"), last_message([{"role": "user", "content": "2+2?"}])
    ('1+1?', '2+2?')
    """
    prompts = [content] if isinstance(content, str) else []
    prompts += [_text(m) for m in mappings(content) if m.get("role") == "user"]
    texts = [replace_surrogates(text).strip() for text in prompts]
    return next(filter(None, reversed(texts)), "")


def _role(message: Mapping[str, Any]) -> str:
    kinds = (message.get(key) for key in ("role", "name", "function", "type"))
    role, *more = [name for name in map(name_of, kinds) if name] or ["message"]
    return f"{role} ({', '.join(more)})" if more else role


def _text(message: Mapping[str, Any]) -> str:
    content, calls = message.get("content"), message.get("tool_calls")
    texts: list[Any] = [content]
    for part in content if isinstance(content, list) else ():
        texts += [part, *(mapping(part).get(key) for key in _PARTS)]
    texts += [json_text(call) for call in calls] if isinstance(calls, list) else ()
    return "\n".join(text for text in texts if isinstance(text, str))
