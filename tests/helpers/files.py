"""Writes files for readers, and checks the errors of readers."""

import gzip

import pytest

from applications.common.errors import InputError


def write(path, content):
    """Write text or bytes, compressed if the name ends in .gz, and return the path."""
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def fails(call, *parts):
    """Assert that a call raises `InputError` and that the message contains every part."""
    with pytest.raises(InputError) as caught:
        call()
    for part in parts:
        assert str(part) in str(caught.value)
