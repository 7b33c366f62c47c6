"""The worker of shardfuzz for PyTorch's parallel training: shardfuzz fuzz --target torch-train."""
from shardfuzz import worker

worker.main(__package__)
