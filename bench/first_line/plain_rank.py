"""A rank without a launcher."""

import os

from noted import note

note(int(os.environ["RANK"]))
