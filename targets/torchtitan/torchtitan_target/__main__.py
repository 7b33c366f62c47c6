"""The worker of shardfuzz for torchtitan: shardfuzz fuzz --target torchtitan."""
import sys

from .serving import serve

try:
    serve()
except RuntimeError as error:
    print(f"torchtitan_target: {error}", file=sys.stderr)
    sys.exit(2)
