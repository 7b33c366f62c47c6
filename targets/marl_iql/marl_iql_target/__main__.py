"""The worker of shardfuzz for torchrl: shardfuzz fuzz --target marl-iql."""
from shardfuzz import worker

worker.main(__package__)
