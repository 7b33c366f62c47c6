"""The one exception of this package."""


class ShardfuzzError(Exception):
    """Bad use or a machine that cannot go on (disk, a missing program). The text is one line that says what and where."""
