# Everything happens in .venv. `make up` installs what runs, the others what checks it too;
# both again when pyproject.toml or constraints.txt has changed. With uv it is faster.

VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
UV := $(shell command -v uv 2>/dev/null)
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
CODE := src tests examples bench docs

ifdef UV
INSTALL := uv pip install --quiet --python $(BIN)/python
else
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
endif

.PHONY: up test mutants check docs bench clean

up: $(VENV)/.run  ## everything on this machine, with the example; Ctrl-C ends it
	@$(BIN)/semel up examples/oncall.py

test: $(VENV)/.all  ## the whole suite, on PostgreSQL servers of its own
	$(BIN)/python -m pytest -n 2 --dist worksteal

mutants: $(VENV)/.all  ## the suite against every guard of the SQL taken out in turn; half an hour
	PYTHONPATH=tests $(BIN)/python tests/mutants.py

check: docs  ## style, types, layers, docs
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/ty check
	$(BIN)/lint-imports

docs: $(VENV)/.all  ## docs/_build/html
	$(BIN)/sphinx-build -q -n -W --keep-going docs docs/_build/html

bench: $(VENV)/.run $(BENCH)/.peers  ## beside other queues; BENCH_ARGS="--quick --rounds 1"
	$(BIN)/python bench/run.py $(BENCH_ARGS)

clean:  ## all that can be made again; the database in .semel stays
	rm -rf $(VENV) $(BENCH) bench/peers/node_modules docs/_build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Semel needs Python 3.11 or newer, as python3 or PYTHON=..." >&2; exit 1; }
ifdef UV
	uv venv --quiet --seed --python $(PYTHON) $(VENV)
else
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	echo "$(PYTHON) cannot make an environment: install python3-venv (Debian, Ubuntu), or uv" >&2; exit 1; }
endif

# The peers stay away from our own environment. Node comes from PyPI; without it, or without the
# npm registry, the two peers on it are skipped and run.py says so.
$(BENCH)/.peers: bench/requirements.txt bench/constraints.txt bench/peers/package.json
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install -qq --disable-pip-version-check \
		-r bench/requirements.txt -c bench/constraints.txt
	-bench/node-install $(BENCH)
	@touch $@

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -c constraints.txt -e '.[all,test,dev]'
	@touch $@ $(VENV)/.run
