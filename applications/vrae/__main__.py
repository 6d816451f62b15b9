"""`python -m applications.vrae {train,evaluate,generate,summarize,compare,export}`."""

import sys

from applications.common.command_line import main
from applications.vrae.options import PROGRAM

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
