from faults.fault import Fault

PAGE = "ARCHITECTURE.md"
TESTS = ("tests/test_architecture.py",)

FAULTS = [
    Fault(
        "architecture: a room without a row",
        PAGE,
        "| `annealing` | schedules for the weight of a KL | `support` |\n",
        "",
        TESTS,
        "every_room",
    ),
    Fault(
        "architecture: a score imports the layers where it is asked",
        "scores/score.py",
        "        return self.project_keys(key)\n",
        "        from keras_vattn import layers  # noqa: F401\n\n        return self.project_keys(key)\n",
        TESTS,
        "who_imports_whom",
    ),
    Fault(
        "architecture: a program imports another in several lines",
        "applications/nmt/report.py",
        "from applications.text.batching import",
        "from applications.ved.data import (\n    Codec,  # noqa: F401\n)\nfrom applications.text.batching import",
        TESTS,
        "who_imports_whom",
    ),
    Fault(
        "architecture: a direction that no file takes",
        PAGE,
        "| `losses` | losses of whole sequences, in nats an example | `support` |",
        "| `losses` | losses of whole sequences, in nats an example | `random`, `support` |",
        TESTS,
        "who_imports_whom",
    ),
    Fault(
        "architecture: a row above what its room imports",
        PAGE,
        "| `annealing` | schedules for the weight of a KL | `support` |",
        "| `annealing` | schedules for the weight of a KL | `plots` |",
        TESTS,
        "those_above_it",
    ),
    Fault(
        "architecture: TensorFlow Probability by another door",
        "annealing.py",
        "import keras\n",
        "import keras\nimport tensorflow_probability  # noqa: F401\n",
        TESTS,
        "one_door",
    ),
]
