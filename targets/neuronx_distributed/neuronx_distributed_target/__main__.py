"""The worker of shardfuzz for neuronx-distributed: shardfuzz fuzz --target neuronx-distributed."""
from shardfuzz import worker

worker.main(__package__)
