"""The worker of shardfuzz for marl_iql: shardfuzz fuzz --target open-clip."""
import sys

from .serving import serve

try:
    serve()
except RuntimeError as error:
    print(f"marl_iql_target: {error}", file=sys.stderr)
    sys.exit(2)
