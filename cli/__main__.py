"""`python -m moeplan.cli`."""

from .entry import script

script()
