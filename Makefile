# Everything happens in .venv. `make up` installs what runs, the others what checks it too;
# both again when pyproject.toml or constraints.txt has changed. With uv it is faster.

VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
UV := $(shell command -v uv 2>/dev/null)
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
OBAN_PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 \
	$(HOME)/.pyenv/versions/3.1[2-9].*/bin/python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done)
CODE := src tests examples bench docs

ifdef UV
INSTALL := uv pip install --quiet --python $(BIN)/python
else
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
endif

.PHONY: up test soak mutants check docs bench clean

up: $(VENV)/.run  ## everything on this machine, with the example; Ctrl-C ends it
	@$(BIN)/semel up examples/oncall.py

test: $(VENV)/.all  ## the whole suite, on PostgreSQL servers of its own
	$(BIN)/python -m pytest -n 3 --dist worksteal

soak: $(VENV)/.all  ## 17,000 new schedules of the models, a minute of bad input for each door
	HYPOTHESIS_PROFILE=soak SEMEL_FUZZ_SECONDS=$${SEMEL_FUZZ_SECONDS:-60} $(BIN)/python -m pytest -n 2 --dist worksteal \
		tests/model tests/fuzz

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

bench: $(VENV)/.run $(BENCH)/.peers $(BENCH)-oban/.peers  ## beside other queues; BENCH_ARGS="--quick --rounds 1"
	$(BIN)/python bench/run.py $(BENCH_ARGS)

clean:  ## all that can be made again; the database in .semel stays
	rm -rf $(VENV) $(BENCH) $(BENCH)-oban bench/peers/node_modules tests/node/1*/node_modules docs/_build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

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

# Without a Python that is new enough this one peer is skipped.
$(BENCH)-oban/.peers: bench/requirements-oban.txt bench/constraints.txt
	@mkdir -p $(BENCH)-oban
	-test -n "$(OBAN_PYTHON)" && $(OBAN_PYTHON) -m venv $(BENCH)-oban && \
		$(BENCH)-oban/bin/python -m pip install -qq --disable-pip-version-check \
		-r bench/requirements-oban.txt -c bench/constraints.txt
	@touch $@

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -c constraints.txt -e '.[all,test,dev]'
	@touch $@ $(VENV)/.run
