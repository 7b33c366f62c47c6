"""Fuzzes training with DeepSpeed's engine, on a CPU with Gloo ranks."""
