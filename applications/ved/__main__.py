"""`python -m applications.ved {train,evaluate,generate,compare,export}`."""

import sys

from applications.common.command_line import main
from applications.ved.options import PROGRAM

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
