"""`python -m toy_program {train,evaluate,predict,compare,export}`."""

import sys

from applications.common.command_line import main
from toy_program.options import PROGRAM

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
