"""``python -m gemmbench``, and the script ``gemmbench``."""

import signal

# A KeyboardInterrupt within an import may be lost, or come out as a SyntaxError: Ctrl-C ends the process
# until the command is imported.
if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from gemmbench.cli import main

if __name__ == "__main__":
    main()
