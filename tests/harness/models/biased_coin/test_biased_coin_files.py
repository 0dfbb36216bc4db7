"""Files of success probabilities, and every way to get one wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from _support.errors import refused
from lm_eval.api.instance import Instance

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.instances import new_instance
from lm_eval_bayes.harness.models.biased_coin.model import BiasedCoinLM


def request(doc_id: int) -> Instance:
    arguments = (f"question {doc_id}", {"until": []})
    return new_instance({"answer": "12"}, arguments, task="quiz", doc_id=doc_id)


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    return path


def test_probabilities_by_position(tmp_path: Path) -> None:
    rows = [{"id": i, "p": p} for i, p in enumerate([0.0, 0.125, 1.0])]
    path = written(tmp_path / "p.jsonl", *rows)
    lm = BiasedCoinLM(file=str(path))
    lm.generate_until([request(i) for i in range(3)])
    info = lm.get_model_info()["biased_coin"]
    assert info["true_p"] == {"quiz": {"0": 0.0, "1": 0.125, "2": 1.0}}
    assert info["law"] == {"kind": "file", "file": str(path), "rows": 3}


def test_a_question_that_is_not_in_the_file_is_refused_before_sampling(tmp_path: Path) -> None:
    path = written(tmp_path / "p.jsonl", {"id": 0, "p": 0.5})
    with refused("file", "missing", 1, error=ModelConfigError):
        BiasedCoinLM(file=str(path)).generate_until([request(0), request(1)])


@pytest.mark.parametrize(
    ("text", "line", "broken"),
    [
        ('{"id": 0, "p": 0.5}\n{"id": 1, "p": 1.5}', 2, ("p", "range", 1.5)),
        (" \n", None, ("file", "empty")),
        ('{"id": 0, "p": 0.5}\n{"id": 1\n', 2, ("file", "format", '{"id": 1')),
        ("[" * 100_000 + "\n", 1, ("file", "format")),
        ('{"id": -1, "p": 0.5}\n', 1, ("id", "format", -1)),
        ('{"id": "0", "p": 1}\n', 1, ("id", "format", "0")),
        ('{"id": 0, "p": 0.5}\n{"id": 0, "p": 0.6}', 2, ("id", "duplicate", 0)),
        ('{"id": 0, "p": 0.5, "q": 7}', 1, ("file", "format")),
    ],
)
def test_a_malformed_row_is_named_by_its_line(
    tmp_path: Path, text: str, line: int | None, broken: Any
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text, encoding="utf-8")
    with refused(*broken, error=ModelConfigError) as caught:
        BiasedCoinLM(file=str(path))
    assert line is None or f"line {line}" in str(caught.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with refused("file", "path", error=ModelConfigError):
        BiasedCoinLM(file=str(path))
