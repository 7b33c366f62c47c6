"""The worker of shardfuzz for DeepSpeed: shardfuzz fuzz --target deepspeed."""
from shardfuzz import worker

worker.main(__package__)
