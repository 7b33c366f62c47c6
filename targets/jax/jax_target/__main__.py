"""The worker of shardfuzz for JAX: shardfuzz fuzz --target jax."""
from shardfuzz import worker

worker.main(__package__)
