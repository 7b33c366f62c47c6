"""Independent Q-learning of several agents with torchrl, for shardfuzz."""
