"""The worker of shardfuzz for transformers: shardfuzz fuzz --target transformers."""
import sys

from .serving import serve

try:
    serve()
except RuntimeError as error:
    print(f"transformers_target: {error}", file=sys.stderr)
    sys.exit(2)
