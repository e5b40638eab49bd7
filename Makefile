# make train: from nothing to a trained policy.  make test: lint, types and tests.  Both use .venv in this checkout.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# One torch thread: with more, one busy core makes every step many times slower.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
WORKERS ?= 2

.PHONY: train test lint types unit clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Plumbline needs Python 3.11 or newer: make PYTHON=python3.11 ..."'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[test,report]'
	touch $@

train: $(VENV)/.installed
	$(BIN)/python -m grpo.train reward=verifiable+format $(ARGS)

test: lint types unit

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/pyright

unit: $(VENV)/.installed
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

clean:
	rm -rf $(VENV) outputs .pytest_cache .ruff_cache build *.egg-info
