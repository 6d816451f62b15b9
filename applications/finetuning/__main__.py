"""`python -m applications.finetuning {train,evaluate,predict,compare,export}`."""

import sys

from applications.common.command_line import main
from applications.finetuning.options import PROGRAM

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
