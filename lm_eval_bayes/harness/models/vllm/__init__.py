"""The harness's `vllm` backend, one trial at a time: its engine driven step by step."""
