"""Starts a program that ends when the process that started it does, even if that is killed.

Called with the process ID of that process, the program and its arguments. Python has no such
call, and a `preexec_fn` may deadlock in a process with threads. So this script makes the call in
a process of its own, which then becomes the program.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when its parent's thread ends."""

NOT_STARTED = 127
"""The exit code where the program cannot be started; its reason is what was printed."""


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    # As Ctrl-C does, it ends the run, and what was made for it is removed.
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        sys.exit("prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit("the process that started this one has ended")
    # Python ignores them; what it starts should not.
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(error.strerror)
        sys.exit(NOT_STARTED)


if __name__ == "__main__":
    main()
