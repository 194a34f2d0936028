"""`python -m moeplan.cli`."""

from .main import script

script()
