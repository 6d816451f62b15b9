"""`python -m applications.nmt {train,evaluate,generate,compare,export}`."""

import sys

from applications.common.command_line import main
from applications.nmt.options import PROGRAM

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
