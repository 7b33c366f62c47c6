"""The worker of shardfuzz for transformers: shardfuzz fuzz --target transformers."""
from shardfuzz import worker

worker.main(__package__)
