"""Commands as they stand in our documents."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def commands(word: str) -> list[str]:
    """The lines of the one code block of the README's section Install in which this word occurs."""
    section = re.search(r"^## Install$(.*?)^## ", (ROOT / "README.md").read_text(), re.S | re.M)
    blocks = re.findall(r"^```\n(.*?)^```$", section[1], re.S | re.M)
    (found,) = [block for block in blocks if word in block]
    return found.splitlines()


def lines(document: str) -> list[str]:
    """All lines of the code blocks of a document, without their comments."""
    blocks = re.findall(r"^```\n(.*?)^```$", (ROOT / document).read_text(), re.S | re.M)
    return [line.partition("  #")[0].rstrip() for block in blocks for line in block.splitlines()]
