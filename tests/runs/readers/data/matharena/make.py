"""Make the outputs of MathArena in this folder with its own code (commit e927660, MIT licence).

Run this with the `src` folder of github.com/eth-sri/matharena on the path. No model is asked: the
conversations and their grades are set here, MathArena's `Runs` keeps and writes them. The table
`published.parquet` has the columns that its `scripts/curation/upload_outputs.py` publishes. What
MathArena computed is printed, for the tests.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pandas
from matharena.json_zst import load_json_zst
from matharena.runs import Runs

HERE = Path(__file__).parent
COMPETITION = "aime/aime_2025"
#: By model and problem the letters of four runs: y and n right or not, t is not yet graded.
PLANS = {
    "openai/strong": {1: "yyyy", 2: "yyny", 3: "nyyn", 4: "yyyn"},
    "open/weak": {1: "ynyn", 2: "nnnn", 3: "nnyn", 4: "yynt"},
}


rows = []
for config, plan in PLANS.items():
    folder = HERE / "outputs" / COMPETITION / config
    folder.mkdir(parents=True, exist_ok=True)
    for number, letters in plan.items():
        problem = {
            "problem_idx": number,
            "problem": f"What is {number} + {number}?",
            "answer": 2 * number,
            "problem_type": ["Algebra" if number % 2 else "Number Theory"],
        }
        runs = Runs(COMPETITION, True, config, "pure_model", problem, str(folder))
        for n, letter in enumerate(letters):
            answer = 2 * number if letter == "y" else n
            conversation = [
                {"role": "user", "content": problem["problem"]},
                {"role": "assistant", "type": "response", "content": f"\\boxed{{{answer}}}"},
            ]
            cost = {"cost": 0.25, "input_tokens": 10, "output_tokens": 5, "time": 2.0}
            grade = "TODO" if letter == "t" else letter == "y"
            response = SimpleNamespace(conversation=conversation, detailed_cost=cost, history=None)
            runs.add_run(response, (answer, grade, 0))
        runs.save_to_file()
        data = load_json_zst(runs.path)
        print(config, number, data["pass_at_1"])
        rows += [
            {
                "problem_idx": str(number),
                "problem": data["problem"],
                "model_name": config.partition("/")[2].title(),
                "model_config": config,
                "idx_answer": i,
                "all_messages": json.dumps(data["messages"][i]),
                "user_message": data["messages"][i][0]["content"],
                "answer": data["messages"][i][-1]["content"],
                "input_tokens": data["detailed_costs"][i]["input_tokens"],
                "output_tokens": data["detailed_costs"][i]["output_tokens"],
                "cost": data["detailed_costs"][i]["cost"],
                "source": data["source"],
                "gold_answer": data["gold_answer"],
                "parsed_answer": data["answers"][i],
                "correct": data["correct"][i] is True,
            }
            for i in range(data["N"])
        ]
pandas.DataFrame(rows).to_parquet(HERE / "published.parquet")
