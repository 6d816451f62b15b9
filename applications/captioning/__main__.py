"""`python -m applications.captioning {train,evaluate,generate,compare,export,features}`."""

import sys

from applications.captioning.options import PROGRAM
from applications.common.command_line import main

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
