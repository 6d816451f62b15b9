"""`python -m applications.vqa {train,evaluate,predict,compare,export,features}`."""

import sys

from applications.common.command_line import main
from applications.vqa.options import PROGRAM

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
