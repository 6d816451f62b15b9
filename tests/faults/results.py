"""Faults of what is kept of comparisons, and of what is decided from it."""

from faults.fault import Fault

FAULTS = [
    Fault(
        "ratings: in the order of the file",
        "tools/human_evaluation.py",
        "return np.array([found[number] for number in expected])",
        "return np.array(list(found.values()))",
        ("tests/applications/common/test_human_evaluation.py",),
        "raters_say",
    ),
    Fault(
        "ratings: a model after the other",
        "tools/human_evaluation.py",
        "rows = [rows[place] for place in generator.permutation(len(rows))]",
        "rows = [rows[place] for place in range(len(rows))]",
        ("tests/applications/common/test_human_evaluation.py",),
        "blind",
    ),
    Fault(
        "results: an option of one model is said to be all models'",
        "applications/common/results.py",
        """record["options"] for of in comparison.records.values() for record in of]""",
        """record["options"] for of in list(comparison.records.values())[:1] for record in of]""",
        ("tests/applications/common/test_results.py",),
        "results",
    ),
    Fault(
        "results: the CPU time of the runs before in the same process is counted again",
        "applications/common/training.py",
        "cpu_start=self._cpu_start,",
        "cpu_start=0.0,",
        ("tests/applications/common/test_results.py",),
        "results",
    ),
    Fault(
        "results: a file of more runs is written over",
        "applications/common/results.py",
        "    if lost:\n",
        "    if False:\n",
        ("tests/applications/common/test_results.py",),
        "lost",
    ),
    Fault(
        "reproduction: two seeds decide",
        "tools/reproduction.py",
        "if len(values) < MIN_SEEDS:",
        "if len(values) < 2:",
        ("tests/docs/test_reproduction.py",),
        "verdict",
    ),
    Fault(
        "reproduction: the mean decides",
        "tools/reproduction.py",
        '"holds" if interval[1] > by',
        '"holds" if interval[0] > by',
        ("tests/docs/test_reproduction.py",),
        "verdict",
    ),
]
