"""Options and runs for the tests of the programs."""

from applications.common.application import Run
from applications.common.options import fields_of, with_values


def changed(options, **values):
    """Return options with other values, which must be some of theirs."""
    unknown = values.keys() - fields_of(type(options)).keys()
    assert not unknown, unknown
    return with_values(options, values)


def prepared(application, options):
    """Return a run on data that are read and encoded, its model not trained."""
    data = application.read(options)
    codec = application.codec(options, data)
    encoded = {name: application.encode(options, codec, part, name == "train") for name, part in data.items()}
    return Run(None, options, encoded, codec, application.build(options, codec))
