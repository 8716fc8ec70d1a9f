"""The errors and warnings of this package."""


class UnspinError(Exception):
    """The base of all errors of this package."""


class FormatError(UnspinError):
    """A file that `unspin lab run` cannot have written. The message names the file and the line."""


class SweepError(UnspinError):
    """A sweep cannot start or go on. What finished before is in the output folder."""


class NotDeterministicError(SweepError):
    """Two results with the same identity differ. The message names both and their differences."""


class TornLineWarning(UserWarning):
    """The last line of a `runs.jsonl` has no end, because a write was interrupted."""


class LeftOutWarning(UserWarning):
    """A folder contains runs of an earlier plan, which are left out."""
