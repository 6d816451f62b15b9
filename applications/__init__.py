"""The programs built with keras_vattn. They run from a checkout: `python -m applications.NAME COMMAND`."""

import os

# TensorFlow's start-up messages would hide the programs' own; a value set by the user stands.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
