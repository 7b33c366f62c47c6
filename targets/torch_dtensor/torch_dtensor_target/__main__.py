"""The worker of shardfuzz for DTensor: shardfuzz fuzz --target torch-dtensor."""
import sys

from .serving import serve

try:
    serve()
except RuntimeError as error:
    print(f"torch_dtensor_target: {error}", file=sys.stderr)
    sys.exit(2)
