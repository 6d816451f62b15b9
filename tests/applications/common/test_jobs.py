"""What each of several processes has of a machine."""

import pytest

from applications.common.jobs import environment_of


@pytest.mark.parametrize(
    "gpus, num_jobs, visible, grows",
    [
        ((), 2, [None, None], False),
        (("0", "1"), 2, ["0", "1"], False),
        (("4", "5", "7"), 2, ["4", "5"], False),
        (("1", "4", "5", "7"), 2, ["1,4", "5,7"], False),
        (("4", "5"), 1, ["4,5"], False),
        (("6",), 2, ["6", "6"], True),
        (("2", "3"), 3, ["2", "3", "2"], True),
    ],
)
def test_gpus_are_shared_out(gpus, num_jobs, visible, grows):
    found = [environment_of(list(gpus), num_jobs, index) for index in range(num_jobs)]
    assert [variables.get("CUDA_VISIBLE_DEVICES") for variables in found] == visible
    assert {variables.get("TF_FORCE_GPU_ALLOW_GROWTH") for variables in found} == {"true" if grows else None}
