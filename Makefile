# Every target makes .venv itself where it is missing or older than pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint bench readme-tables clean

demo: $(READY)
	$(BIN)/moeplan demo

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadgroup

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(READY)
	$(BIN)/python -m moeplan.benchmarks.micro

# Long: makes every table and figure of benchmarks/RESULTS.md and of the README, which quotes it, anew.
readme-tables: $(READY)
	$(BIN)/python -m moeplan.benchmarks.results
	$(BIN)/python -m moeplan.benchmarks.readme

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("moeplan needs Python 3.11 or newer; set PYTHON=/path/to/it" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,dask,ray]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
