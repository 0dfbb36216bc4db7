#!/usr/bin/env bash
# Writes the logs beside it: bash make_lm_eval.sh VERSION, in an environment with lm_eval==VERSION
# (0.4.2 and 0.4.9; before 0.4.3 it is to find `exact_match` as a local metric).
set -euo pipefail
work=$(mktemp -d)
cat >"$work/data.jsonl" <<'DATA'
{"question": "1+1=", "answer": "lol"}
{"question": "2+2=", "answer": "4"}
{"question": "3+3=", "answer": "lol"}
{"question": "4+4=", "answer": "8"}
DATA
for task in gen mc; do
  [ $task = gen ] && what="output_type: generate_until
repeats: 3
generation_kwargs: {until: ['\\n'], do_sample: true, temperature: 0.7}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]" \
    || what="output_type: multiple_choice
doc_to_choice: ['lol', '4', '8']
metric_list: [{metric: acc}, {metric: acc_norm}]"
  cat >"$work/toy_$task.yaml" <<TASK
task: toy_$task
dataset_path: json
dataset_kwargs: {data_files: {test: $work/data.jsonl}}
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
$what
metadata: {version: 1.0}
TASK
done
cat >"$work/drive.py" <<'CODE'
import random

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model


@register_model("table")
class Table(LM):
    def __init__(self):
        super().__init__()
        self.rng = random.Random(4)

    @classmethod
    def create_from_arg_string(cls, arguments, more=None):
        return cls()

    def generate_until(self, requests, **more):
        return [self.rng.choice(["lol", "4"]) for _ in requests]

    def loglikelihood(self, requests, **more):
        return [(-self.rng.random(), False) for _ in requests]

    def loglikelihood_rolling(self, requests, **more):
        return [-1.0 for _ in requests]


cli_evaluate()
CODE
python "$work/drive.py" --model table --model_args pretrained=org/name --tasks toy_gen,toy_mc \
  --include_path "$work" --log_samples --output_path "lm_eval_$1"
