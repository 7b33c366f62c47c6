"""A limit of processor time for code under test that may search for minutes."""
import contextlib
import signal

from ..worker import Refused


class _OutOfTime(BaseException):
    """Raised where the code under test uses more processor time than a run has. No `except Exception` on the way up swallows it."""


@contextlib.contextmanager
def refused(seconds, what=""):
    """Code under test that fails, or that uses more than that much processor time of this process: the case is refused. The text begins with `what`. Code that was broken
    off may have left anything behind, so the process ends after that answer."""
    def stop(*_):
        raise _OutOfTime(f"more than {seconds} s of processor time")
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except Refused:
        raise
    except (Exception, _OutOfTime) as error:  # noqa: BLE001
        raise Refused(what + line_of(error), isinstance(error, _OutOfTime)) from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def line_of(error):
    """An exception in one line of at most 300 characters."""
    return f"{type(error).__name__.lstrip('_')}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300]
