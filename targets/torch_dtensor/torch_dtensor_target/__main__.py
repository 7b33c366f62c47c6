"""The worker of shardfuzz for DTensor: shardfuzz fuzz --target torch-dtensor."""
from shardfuzz import worker

worker.main(__package__)
