"""The worker of shardfuzz for DeepSpeed: shardfuzz fuzz --target deepspeed."""
import sys

from .serving import serve

try:
    serve()
except RuntimeError as error:
    print(f"deepspeed_target: {error}", file=sys.stderr)
    sys.exit(2)
