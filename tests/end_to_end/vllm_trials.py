"""Sample trials from a real model with vLLM, compare them, and go on sampling until stopped.

    python tests/end_to_end/vllm_trials.py MODEL [--measure]

With ``--measure`` prints one line of JSON that begins with ``MEASURED``. Then samples until a
signal ends it, and prints ``SAMPLING`` and the ids of the engine's processes after one trial.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import sys
from typing import Any

TRIALS, LENGTH = 4, 24
QUESTIONS = ("What is 7 plus 5?", "What is 12 plus 30?", "Name a colour.", "Say a short poem.")


def make(model: str) -> Any:
    from lm_eval.models.vllm_causallms import VLLM

    from lm_eval_bayes.harness.models.vllm.sampling import VLLMSampling

    return type("Trials", (VLLMSampling, VLLM), {"backend_name": "vllm"})(
        pretrained=model,
        dtype="float32",
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=6,
        batch_size="auto",
    )


def orders(lm: Any, trials: int = TRIALS, length: int = LENGTH) -> list[Any]:
    from _support.trial_requests import trial_request

    from lm_eval_bayes.harness.models.api_seeds import trial_seed

    prompts = [lm.apply_chat_template([{"role": "user", "content": q}]) for q in QUESTIONS]
    kwargs = {
        **{"temperature": 0.8, "top_p": 0.95, "top_k": 0, "min_p": 0.0},
        **{"until": ["\n\n\n"], "max_gen_toks": length, "do_sample": True},
    }
    return [
        trial_request(i * len(prompts) + k, prompt, prompt, i, trial_seed(1234, i, prompt), kwargs)
        for i in range(trials)
        for k, prompt in enumerate(prompts)
    ]


def stream_of(asked: list[Any]) -> Any:
    from _support import trial_requests

    return trial_requests.stream_of(asked)


def sampled(lm: Any, asked: list[Any], measure: bool = False) -> dict[int, Any]:
    wanted = frozenset(order.prompt for order in asked) if measure else frozenset()
    return {order.index: got for order, got in lm.sample(stream_of(asked), wanted)}


def by_the_harness(lm: Any, asked: list[Any]) -> list[str]:
    """Return what the harness's own backend says to the same prompts and seeds."""
    from lm_eval_bayes.harness.evaluation import new_instance

    requests = [
        new_instance({}, (o.context, {**o.kwargs, "seed": o.seed}), task="t", doc_id=i)
        for i, o in enumerate(asked)
    ]
    return lm.generate_until(requests, disable_tqdm=True)


def bits_differences(model: str, asked: list[Any], got: dict[int, Any]) -> dict[str, Any]:
    """Compare the recorded bits with a forward pass of transformers, token by token."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    completions, prompts, skipped = [], [], 0
    for order in asked:
        one = got[order.index]
        prompt = tokenizer(order.prompt, add_special_tokens=False).input_ids
        ended = [tokenizer.eos_token_id] if one.finish_reason == "stop" else []
        completion = tokenizer(one.text, add_special_tokens=False).input_ids + ended
        if len(completion) != one.completion_tokens or one.stop_reason is not None:
            skipped += 1  # sampled in other pieces than the tokenizer would make
            continue
        tokens = prompt + completion
        with torch.no_grad():
            logits = network(torch.tensor([tokens])).logits[0].double()
        steps = torch.log_softmax(logits, -1)[range(len(tokens) - 1), tokens[1:]]
        bits = (-steps / math.log(2)).tolist()
        own = bits[len(prompt) - 1 :]
        completions.append(abs(sum(own) / len(own) - one.signals["completion_bpt"]))
        if "prompt_bpt" in one.signals:
            own = bits[: len(prompt) - 1]
            prompts.append(abs(sum(own) / len(own) - one.signals["prompt_bpt"]))
    return {"completions": completions, "prompts": prompts, "skipped": skipped}


def measure(lm: Any, model: str) -> dict[str, Any]:
    asked = orders(lm)
    before = {"loaded": lm.weights_loaded, "fingerprint": lm.fingerprint()}
    got = sampled(lm, asked, measure=True)
    again = sampled(lm, asked)
    shuffled = random.Random(5).sample(asked, len(asked))
    apart = {place: s for o in asked[:4] for place, s in sampled(lm, [o]).items()}
    stream = lm.sample(stream_of(asked), frozenset())
    next(stream)
    stream.close()
    finished = [lm.finished_text(got[o.index].text, o.kwargs, {}) for o in asked]
    mixed = sampled(lm, shuffled)
    return {
        **before,
        "texts": [got[o.index].text for o in asked],
        "unmeasured": [again[o.index].text for o in asked],
        "shuffled": [mixed[o.index].text for o in asked],
        "alone": [apart[o.index].text for o in asked[:4]],
        "finished": finished,
        "harness": by_the_harness(lm, asked),
        "unfinished": lm.model.llm_engine.get_num_unfinished_requests(),
        "records": [
            {
                "tokens": s.completion_tokens,
                "prompt_tokens": s.prompt_tokens,
                "finish_reason": s.finish_reason,
                "queued_s": s.queued_s,
                "generated_s": s.generated_s,
                "concurrency": s.concurrency,
                "signals": dict(s.signals),
            }
            for s in (got[o.index] for o in asked)
        ],
        "bits": bits_differences(model, asked, got),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--measure", action="store_true")
    args = parser.parse_args()
    lm = make(args.model)
    if args.measure:
        print("MEASURED", json.dumps(measure(lm, args.model)), flush=True)
    for number, _ in enumerate(lm.sample(stream_of(orders(lm, 1000, 400)), frozenset())):
        if number == 0:
            processes = [child.pid for child in multiprocessing.active_children()]
            print("SAMPLING", json.dumps(processes), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
