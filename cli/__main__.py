"""`python -m moeplan.cli`."""

from .main import run

run()
