"""Fuzzes sharded programs of JAX, as chains of operations with their gradients, on simulated devices."""
