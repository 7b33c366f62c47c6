"""A limit of processor time for code under test that may search for minutes."""
import contextlib
import signal


class OutOfTime(BaseException):
    """Raised where the code under test uses more processor time than a run has. No `except Exception` on the way up swallows it."""


@contextlib.contextmanager
def limited(seconds):
    """Raises OutOfTime after that much processor time of this process, as soon as Python code runs."""
    def stop(*_):
        raise OutOfTime(f"more than {seconds} s of processor time")
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def line_of(error):
    """An exception in one line of at most 300 characters."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300]
