"""What a vLLM model's distribution depends on, told from its arguments and configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval_bayes._util.hashing import hash_json, hash_text
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.weights import settings_of, tokenizer_of, weights_of

log = get_logger(__name__)

#: Arguments of the engine that are told in another way, or that say nothing of what it samples.
_TOLD = frozenset(
    (
        "model",
        "revision",
        "dtype",
        "tokenizer",
        "tokenizer_mode",
        "tokenizer_revision",
        "max_model_len",
        "quantization",
        "seed",
        "enable_lora",
        "max_lora_rank",
    )
)

#: Arguments that change how fast an engine runs, how much memory it takes and what it prints.
_ONLY_SPEED = frozenset(
    {
        "aggregate_engine_logging",
        "all2all_backend",
        "async_scheduling",
        "attention_backend",
        "attention_config",
        "block_size",
        "compilation_config",
        "cpu_offload_gb",
        "cpu_offload_params",
        "cuda_graph_sizes",
        "cudagraph_capture_sizes",
        "cudagraph_metrics",
        "data_parallel_address",
        "data_parallel_backend",
        "data_parallel_size",
        "disable_cascade_attn",
        "disable_custom_all_reduce",
        "disable_hybrid_kv_cache_manager",
        "disable_log_stats",
        "distributed_executor_backend",
        "distributed_timeout_seconds",
        "download_dir",
        "enable_chunked_prefill",
        "enable_dbo",
        "enable_expert_parallel",
        "enable_flashinfer_autotune",
        "enable_log_requests",
        "enable_prefix_caching",
        "enable_sleep_mode",
        "enforce_eager",
        "gpu_memory_utilization",
        "hf_token",
        "ignore_patterns",
        "kernel_config",
        "kv_cache_memory_bytes",
        "kv_offloading_backend",
        "kv_offloading_size",
        "logprobs_mode",
        "long_prefill_token_threshold",
        "master_addr",
        "master_port",
        "max_cudagraph_capture_size",
        "max_logprobs",
        "max_long_partial_prefills",
        "max_num_active_seqs",
        "max_num_batched_tokens",
        "max_num_partial_prefills",
        "max_num_seqs",
        "max_parallel_loading_workers",
        "max_seq_len_to_capture",
        "mm_processor_cache_gb",
        "nnodes",
        "node_rank",
        "num_gpu_blocks_override",
        "numa_bind",
        "nvtx_profiling",
        "optimization_level",
        "performance_mode",
        "pipeline_parallel_size",
        "prefix_caching_hash_algo",
        "preemption_mode",
        "profiler_config",
        "ray_workers_use_nsight",
        "renderer_num_workers",
        "safetensors_load_strategy",
        "safetensors_prefetch_num_threads",
        "scheduler_cls",
        "scheduling_policy",
        "served_model_name",
        "shutdown_timeout",
        "stream_interval",
        "swap_space",
        "tensor_parallel_size",
        "trust_remote_code",
        "use_tqdm_on_load",
    }
)

#: Settings of generation_config.json that change the distribution if they are applied, with
#: the values at which they change nothing. Temperature and its like are always given.
_NOT_APPLIED: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1, None),
    "no_repeat_ngram_size": (0, None),
    "encoder_repetition_penalty": (1, None),
    "typical_p": (1, None),
    "epsilon_cutoff": (0, None),
    "eta_cutoff": (0, None),
    "bad_words_ids": (None,),
    "suppress_tokens": (None,),
    "begin_suppress_tokens": (None,),
    "min_new_tokens": (0, None),
}


def vllm_fingerprint(
    model_args: Mapping[str, Any],
    model_config: Any,
    *,
    max_length: int,
    chat_template: str | None,
    lora: str | None,
    tokenization: Mapping[str, Any],
) -> dict[str, Any]:
    """Tell all that changes what a model says under vLLM, and nothing that changes only speed.

    An argument of the engine that is not known to change only its speed is told too: it may
    part what belongs together, but never joins what does not.

    Parameters
    ----------
    model_args : mapping
        What the harness passes to `LLM`.
    model_config : object
        vLLM's configuration of the model, with its defaults resolved.
    max_length : int
        Tokens of prompt and completion together.
    chat_template : str or None
        The template, of which a hash is told.
    lora : str or None
        Where an adapter lies.
    tokenization : mapping
        How the harness makes tokens of a prompt.
    """
    pretrained, revision = str(model_args["model"]), model_args.get("revision")
    tokenizer = model_args.get("tokenizer") or pretrained
    commit = getattr(getattr(model_config, "hf_config", None), "_commit_hash", None) or revision
    weights = weights_of(pretrained, commit)
    words_revision = model_args.get("tokenizer_revision")
    if tokenizer == pretrained:
        words_revision = words_revision or commit
    told: dict[str, Any] = {
        "backend": "vllm",
        "pretrained": pretrained,
        "revision": revision,
        "peft": lora,
        "weights": weights if lora is None else hash_json([weights, weights_of(lora)]),
        "settings": settings_of(pretrained, commit),
        "dtype": str(getattr(model_config, "dtype", model_args.get("dtype"))).split(".")[-1],
        "quantization": getattr(model_config, "quantization", model_args.get("quantization")),
        "tokenizer": None if tokenizer == pretrained else tokenizer,
        "tokenizer_revision": model_args.get("tokenizer_revision"),
        "tokenizer_mode": model_args.get("tokenizer_mode"),
        "tokenizer_files": tokenizer_of(tokenizer, words_revision),
        "tokenization": dict(tokenization),
        "chat_template": None if chat_template is None else hash_text(chat_template),
        "max_length": int(max_length),
        "end_tokens": _end_tokens(model_config),
        "engine": {
            name: _plain(value)
            for name, value in sorted(model_args.items())
            if value is not None and name not in _TOLD and name not in _ONLY_SPEED
        },
    }
    return told


def generation_config(model_config: Any) -> dict[str, Any]:
    """Return what a model's own generation_config.json says; nothing where it cannot be read."""
    read = getattr(model_config, "try_get_generation_config", None)
    try:
        return dict(read() or {}) if callable(read) else {}
    except Exception:
        return {}


def warn_of_generation_config(model_config: Any, given: Mapping[str, Any]) -> None:
    """Say which settings of generation_config.json would matter and are not applied.

    Parameters
    ----------
    model_config : object
        vLLM's configuration of the model.
    given : mapping
        The generation settings of the task, which win where they name the same.
    """
    said = generation_config(model_config)
    ignored = {
        name: said[name]
        for name, neutral in _NOT_APPLIED.items()
        if name in said and said[name] not in neutral and name not in given
    }
    if ignored:
        log.warning(
            "the model's generation_config.json says %s, which is not applied, as always in this "
            "backend of the harness; give it in --gen_kwargs if it is wanted",
            ", ".join(f"{name}={value}" for name, value in ignored.items()),
        )


def _end_tokens(model_config: Any) -> list[int]:
    # The one thing that vLLM takes from generation_config.json when every setting is given.
    said = generation_config(model_config).get("eos_token_id")
    return sorted({int(t) for t in (said if isinstance(said, (list, tuple)) else [said]) if t})


def _plain(value: Any) -> Any:
    """Return JSON: an argument of another type by what it prints as."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return repr(value)
