"""The worker of shardfuzz for neuronx-distributed: shardfuzz fuzz --target neuronx-distributed."""
import sys

from .serving import serve

try:
    serve()
except RuntimeError as error:
    print(f"neuronx_distributed_target: {error}", file=sys.stderr)
    sys.exit(2)
