"""The worker of shardfuzz for torchtitan: shardfuzz fuzz --target torchtitan."""
from shardfuzz import worker

worker.main(__package__)
