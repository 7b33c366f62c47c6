"""PyTorch's own parallel training, run by shardfuzz."""
