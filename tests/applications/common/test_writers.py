"""Tests that one process at a time writes into a run folder, and that a finished run stays until a new one finishes."""

import fcntl
import os
import signal
import subprocess
import sys

import pytest
from run_files import files_of

from applications.common.errors import InputError
from applications.common.writers import delete_aside, lock, require_unlocked, set_aside, unlock

# A program that locks a folder and starts a process that outlives the program.
WRITER = """
import subprocess, sys, time
from applications.common.writers import lock

lock(sys.argv[1])
started = subprocess.Popen(["sleep", "60"], close_fds=False)
print(flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def unlocked():
    yield
    unlock()


@pytest.fixture
def other_writer():
    """Return a function that locks a folder as another process would."""
    descriptors = []

    def other_writer(path):
        descriptors.append(os.open(path, os.O_RDONLY))
        fcntl.flock(descriptors[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)

    yield other_writer
    for descriptor in descriptors:
        os.close(descriptor)


def test_the_lock_ends_with_its_process(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    try:
        process.stdout.readline()
        for function in (lock, require_unlocked):
            with pytest.raises(InputError, match="is being written by another process"):
                function(tmp_path)
        process.kill()
        process.wait()
        lock(tmp_path)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


def test_a_locked_folder_is_not_written(toy, copied_toy, other_writer):
    """A run folder that another process has locked can be read, but not written."""
    other_writer(copied_toy)
    before = files_of(copied_toy)
    toy.fails("is being written by another process", "train", "--resume", "--out", copied_toy)
    toy.fails("is being written by another process", *toy.train(copied_toy, overwrite=True))
    content = "".join(f"{line}\n" for line in toy.lines).encode()
    toy.succeeds(*toy.answers_of(copied_toy), standard_input=content)
    assert files_of(copied_toy) == before


def test_the_backup_of_a_run(tmp_path, other_writer):
    """Only a finished run replaces the backup of a finished run. Any run replaces the backup of an unfinished run."""
    path, aside = tmp_path / "run", tmp_path / "run.overwritten"

    def run(number, *files):
        path.mkdir()
        for name in ("config.yaml", *files):
            (path / name).write_text(number)
        (path / "checkpoints").mkdir()

    run("1")
    for number, files, expected in (("2", (), "1"), ("3", ("metrics.json",), "2"), ("4", (), "3"), ("5", (), "3")):
        set_aside(path)
        assert not path.exists() and (aside / "config.yaml").read_text() == expected
        run(number, *files)
    set_aside(path)
    run("6", "metrics.json")
    unlock()
    other_writer(aside)
    with pytest.raises(InputError, match="overwritten is being written by another process"):
        set_aside(path)
    delete_aside(path)
    assert (aside / "metrics.json").read_text() == "3"


@pytest.mark.slow
def test_a_finished_run_stays_until_another_has_finished(toy, copied_toy, interrupted, other_writer, without_pictures):
    before, aside = files_of(copied_toy), copied_toy.with_name("copied.overwritten")
    for _ in range(2):
        with interrupted(0, 0):
            toy.fails("interrupted", *toy.train(copied_toy, overwrite=True), status=130)
        assert {path.relative_to(aside) for path in files_of(aside)} == {x.relative_to(copied_toy) for x in before}
    start = ("--start-from", aside)
    toy.fails("--overwrite would delete", *toy.train(copied_toy, overwrite=True, epochs=9), *start)
    toy.succeeds("train", "--resume", "--out", copied_toy, "--no-export")
    assert not aside.exists()
    other_writer(copied_toy)
