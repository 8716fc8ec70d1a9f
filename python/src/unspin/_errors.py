"""What can go wrong."""


class UnspinError(Exception):
    """The base of every error of this package."""


class FormatError(UnspinError):
    """A file is not what `unspin lab run` writes; the message names the file and the line."""


class SweepError(UnspinError):
    """A sweep cannot start or go on. What finished before is in the output folder."""


class NotDeterministicError(SweepError):
    """Two results of one identity differ; the message names both and where they differ."""


class TornLineWarning(UserWarning):
    """The last line of a `runs.jsonl` has no end: an interrupted write left it."""


class LeftOutWarning(UserWarning):
    """A folder holds runs of an earlier plan, which are left out."""
