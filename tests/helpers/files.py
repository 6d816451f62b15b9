"""Files for readers, and what they must refuse."""

import gzip

import pytest

from applications.common.errors import InputError


def write(path, content):
    """Write text or bytes, compressed where the name ends in .gz, and return the path."""
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def fails(call, *parts):
    """Check that a call raises `InputError` whose message contains every part."""
    with pytest.raises(InputError) as caught:
        call()
    for part in parts:
        assert str(part) in str(caught.value)
