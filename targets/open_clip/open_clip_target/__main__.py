"""The worker of shardfuzz for open_clip: shardfuzz fuzz --target open-clip."""
from shardfuzz import worker

worker.main(__package__)
