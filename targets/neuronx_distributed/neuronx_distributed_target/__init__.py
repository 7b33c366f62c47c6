"""Training with neuronx-distributed, AWS's library for Trainium, on a CPU, run by shardfuzz."""
