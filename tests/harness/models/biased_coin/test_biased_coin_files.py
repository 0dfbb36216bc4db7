"""The mimic's files of success probabilities: three forms, and every way to get one wrong."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from _support.errors import refused
from lm_eval.api.instance import Instance
from lm_eval.utils import hash_string

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.instances import new_instance
from lm_eval_bayes.harness.models.biased_coin.model import BiasedCoinLM


def request(doc_id: int, task: str = "quiz") -> Instance:
    arguments = (f"question {doc_id}", {"until": []})
    return new_instance({"answer": "12"}, arguments, task=task, doc_id=doc_id)


def test_three_kinds_of_file_say_the_same(tmp_path: Path) -> None:
    ps = [0.0, 0.125, 1.0]
    by_line, rows, table = (tmp_path / f"p.{kind}" for kind in ("txt", "jsonl", "csv"))
    by_line.write_text("0\n0.125\n1\n\n", encoding="utf-8")
    rows.write_text(
        "".join(json.dumps({"id": i, "p": p}) + "\n" for i, p in enumerate(ps)), encoding="utf-8"
    )
    with table.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([("id", "p"), *enumerate(ps)])
    for path in (by_line, rows, table):
        lm = BiasedCoinLM(file=str(path))
        lm.generate_until([request(i) for i in range(3)])
        info = lm.get_model_info()["biased_coin"]
        assert info["true_p"] == {"quiz": {"0": 0.0, "1": 0.125, "2": 1.0}}
        assert info["law"] == {"kind": "file", "file": str(path), "rows": 3}


def test_prompt_hashes_are_the_harness_s_and_come_before_positions(tmp_path: Path) -> None:
    digest = hash_string("question 1")
    assert digest == hashlib.sha256(b"question 1").hexdigest()
    path = tmp_path / "p.csv"
    path.write_text(f"task,id,p\n,0,0.5\n,1,0.9\nother,0,0.75\n,{digest},0.25\n", encoding="utf-8")
    lm = BiasedCoinLM(file=str(path))
    lm.generate_until([request(0), request(1), request(0, task="other")])
    assert lm.get_model_info()["biased_coin"]["true_p"] == {
        "quiz": {"0": 0.5, "1": 0.25},
        "other": {"0": 0.75},
    }


def test_a_question_that_is_not_in_the_file_is_refused_before_sampling(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("0.5\n", encoding="utf-8")
    with refused("file", "missing", 1, error=ModelConfigError):
        BiasedCoinLM(file=str(path)).generate_until([request(0), request(1)])


@pytest.mark.parametrize(
    ("name", "text", "line", "broken"),
    [
        ("p.txt", "0.5\n1.5\n", 2, ("p", "range", "1.5")),
        ("p.txt", " \n", None, ("file", "empty")),
        ("p.jsonl", '{"id": 0, "p": 0.5}\n{"id": 1\n', 2, ("file", "format", '{"id": 1')),
        ("p.jsonl", "[" * 100_000 + "\n", 1, ("file", "format")),
        ("p.jsonl", '{"id": -1, "p": 0.5}\n', 1, ("id", "format", -1)),
        ("p.jsonl", '{"id": 0, "p": 1, "task": 3}\n', 1, ("task", "type", 3)),
        ("p.csv", "id,p\n0,0.5\n0,0.6\n", 3, ("id", "duplicate", "0")),
        ("p.csv", "id,p\n0,0.5,7\n", 2, ("file", "missing-column")),
        ("p.csv", 'id,p\n0,"0.5\n', 2, ("file", "format")),
    ],
)
def test_a_malformed_row_is_named_by_its_line(
    tmp_path: Path, name: str, text: str, line: int | None, broken: Any
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with refused(*broken, error=ModelConfigError) as caught:
        BiasedCoinLM(file=str(path))
    assert line is None or f"line {line}" in str(caught.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with refused("file", "path", error=ModelConfigError):
        BiasedCoinLM(file=str(path))
