"""Runs the unmodified megatron-core on a CPU and writes traces that shardfuzz judges (targets/trace_format.md)."""
