"""Stands in for vLLM and for the harness's class around it, so that no GPU and no vLLM is needed.

The engine answers a request after as many steps as its seed says, with a text and
log-probabilities that the seed settles too.
"""

from __future__ import annotations

import sys
import types
from types import SimpleNamespace

from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs

from lm_eval_bayes.harness.models.vllm.sampling import VLLMSampling

EOS = "<end>"
#: The generation settings of the tests' requests.
KWARGS = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 0,
    "min_p": 0.0,
    "until": ["\n\n"],
    "max_gen_toks": 8,
    "do_sample": True,
}


class SamplingParams:
    """Knows the settings that vLLM knows, and refuses others as vLLM does."""

    supported = frozenset(
        {
            *("n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "max_tokens"),
            *("logprobs", "prompt_logprobs", "flat_logprobs", "skip_reading_prefix_cache"),
            *("output_kind", "repetition_penalty"),
            *("skip_special_tokens", "spaces_between_special_tokens"),
        }
    )

    def __init__(self, **settings):
        unknown = sorted(set(settings) - self.supported)
        if unknown:
            raise TypeError(f"Unexpected keyword argument '{unknown[0]}'")
        if settings.get("temperature", 1.0) < 0:
            raise ValueError("temperature must be non-negative")
        self.settings = settings
        for name, value in settings.items():
            setattr(self, name, value)


class EngineDeadError(Exception):
    pass


def answer(seed):
    """Return what the engine says to a seed: text, steps, log-probabilities."""
    return f"say {seed}", 1 + seed % 5, [-(1 + seed % 3) / 4] * (1 + seed % 5)


class Engine:
    """An `LLMEngine` that notes what it is asked."""

    def __init__(self, model_config, seats):
        self.model_config = model_config
        self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=seats))
        self.engine_core = SimpleNamespace(shutdown=self._shut_down)
        self.started, self.aborted, self.busy = [], [], []
        self.running = {}
        self.down = 0
        self.steps = self.most = 0
        self.fail_at = None
        self.finish_reason = "stop"

    def _shut_down(self):
        self.down += 1

    def add_request(self, request_id, prompt, params, lora_request=None):
        assert request_id not in self.running
        assert list(prompt["prompt_token_ids"])
        self.started.append((prompt["prompt_token_ids"], params))
        steps = answer(params.seed)[1]
        self.running[request_id] = [steps, prompt["prompt_token_ids"], params]

    def abort_request(self, request_ids):
        self.aborted += request_ids
        for name in request_ids:
            self.running.pop(name, None)

    def step(self):
        self.steps += 1
        seats = self.vllm_config.scheduler_config.max_num_seqs
        self.busy.append(min(len(self.running), seats))
        self.most = max(self.most, len(self.running))
        if self.fail_at is not None and self.steps >= self.fail_at:
            raise EngineDeadError("EngineCore encountered an issue")
        outputs = []
        for name in list(self.running)[:seats]:
            self.running[name][0] -= 1
            if self.running[name][0] == 0:
                _, tokens, params = self.running.pop(name)
                outputs.append(self._output(name, tokens, params))
        return outputs

    def _output(self, name, tokens, params):
        text, _, logprobs = answer(params.seed)
        completion = SimpleNamespace(
            text=text,
            token_ids=list(range(len(logprobs))),
            cumulative_logprob=sum(logprobs),
            finish_reason=self.finish_reason,
            stop_reason=None,
        )
        prompt_logprobs = None
        if getattr(params, "prompt_logprobs", None) is not None:
            starts = [0, *range(len(tokens) - 1)]
            prompt_logprobs = SimpleNamespace(
                logprobs=[-0.5] * (len(tokens) - 1), start_indices=starts
            )
        return SimpleNamespace(
            request_id=name,
            finished=True,
            outputs=[completion],
            prompt_token_ids=list(tokens),
            prompt_logprobs=prompt_logprobs,
        )


class FakeLLM:
    """vLLM's `LLM`; every one that is built is noted."""

    built: list = []  # noqa: RUF012

    def __init__(self, **arguments):
        config = EngineArgs(**arguments).create_model_config()
        self.llm_engine = Engine(config, arguments.get("max_num_seqs") or 4)
        self.arguments = arguments
        FakeLLM.built.append(self)


LLM = FakeLLM


class EngineArgs:
    broken = False
    config: dict = {}  # noqa: RUF012

    def __init__(self, **arguments):
        self.arguments = arguments

    def create_model_config(self):
        if EngineArgs.broken:
            EngineArgs.broken = False
            raise TypeError("Unexpected keyword argument 'chat_template'")
        response = {
            "max_model_len": self.arguments.get("max_model_len") or 64,
            "dtype": f"torch.{self.arguments.get('dtype', 'bfloat16')}",
            "quantization": self.arguments.get("quantization"),
            "logprobs_mode": self.arguments.get("logprobs_mode", "raw_logprobs"),
            "try_get_generation_config": lambda: EngineArgs.config,
        }
        return SimpleNamespace(**response)


class Tokenizer:
    eos_token = EOS

    def decode(self, token):
        return EOS


class VLLM:
    """The parts of the harness's class that a sampling mixin uses, one token a word."""

    eot_token_id = 0
    custom_prefix_token_id = None
    hf_chat_template = "{{ messages }}"

    def __init__(
        self,
        pretrained,
        dtype="auto",
        max_model_len=None,
        think_end_token=None,
        lora_local_path=None,
        truncation_side="left",
        seed=1234,
        batch_size=1,
        **kwargs,
    ):
        self.think_end_token = think_end_token
        self.truncation_side = truncation_side
        self.lora_request = lora_local_path
        self.add_bos_token = None
        self.tokenizer = Tokenizer()
        self.max_gen_toks = 16
        self.model_args = {
            "model": pretrained,
            "dtype": dtype,
            "max_model_len": max_model_len,
            "seed": seed,
            **kwargs,
        }
        self.model = LLM(**self.model_args)
        self.config_seen = self.model.llm_engine.model_config

    @property
    def max_length(self):
        return self.model.llm_engine.model_config.max_model_len

    def tok_encode(self, texts):
        return [[len(word) for word in text.split()] for text in texts]

    @staticmethod
    def modify_gen_kwargs(gen_kwargs, eos=None, default_max_gen_toks=256):
        kwargs = normalize_gen_kwargs(gen_kwargs, default_max_gen_toks=default_max_gen_toks)
        until = handle_stop_sequences(kwargs.pop("until", None), eos=eos)
        length = int(kwargs.pop("max_gen_toks"))
        kwargs.pop("do_sample", None)
        return {"skip_special_tokens": False, **kwargs}, until, length


class FakeTrials(VLLMSampling, VLLM):
    """What `--model trials` makes of the backend, without the recording."""

    backend_name = "vllm"


def install(monkeypatch, cpu=False):
    """Put the stand-ins where the package looks for vLLM."""
    modules = {
        "vllm": {"SamplingParams": SamplingParams},
        "vllm.inputs": {},
        "vllm.inputs.engine": {"tokens_input": lambda tokens: {"prompt_token_ids": tokens}},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(FINAL_ONLY="final")},
        "vllm.engine": {},
        "vllm.engine.arg_utils": {"EngineArgs": EngineArgs},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: cpu)},
    }
    for name, content in modules.items():
        module = types.ModuleType(name)
        module.__path__ = []
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(FakeLLM, "built", [])
    monkeypatch.setattr(EngineArgs, "broken", False)
    monkeypatch.setattr(EngineArgs, "config", {})
