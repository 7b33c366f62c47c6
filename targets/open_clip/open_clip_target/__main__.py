"""The worker of shardfuzz for open_clip: shardfuzz fuzz --target open-clip."""
import sys

from .serving import serve

try:
    serve()
except RuntimeError as error:
    print(f"open_clip_target: {error}", file=sys.stderr)
    sys.exit(2)
