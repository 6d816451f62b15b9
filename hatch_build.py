"""The long description of a package index: README with links that lead somewhere from there."""

import pathlib
import re

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([\w.][\w./#-]*)\)")


def long_description(readme, address, version):
    """Return README with absolute links into the tag of a version; without an address, links are their text alone."""

    def absolute(link):
        is_image, text, path = link.groups()
        if address is None:
            return "" if is_image else text
        return f"{is_image}[{text}]({address}/{'raw' if is_image else 'blob'}/v{version}/{path})"

    return _RELATIVE_LINK.sub(absolute, readme)


class LongDescription(MetadataHookInterface):
    def update(self, metadata):
        readme = pathlib.Path(self.root, "README.md").read_text("utf-8")
        text = long_description(readme, metadata["urls"].get("Repository"), metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
