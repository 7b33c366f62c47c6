"""The worker of shardfuzz for PyTorch's parallel training: shardfuzz fuzz --target torch-train."""
import sys

from .serving import serve

try:
    serve()
except RuntimeError as error:
    print(f"torch_train_target: {error}", file=sys.stderr)
    sys.exit(2)
