"""The harness's `hf` backend, one trial at a time: drawn, measured, finished row by row."""
