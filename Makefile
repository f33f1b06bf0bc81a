# The two commands: `make train` and `make test` set everything up on a fresh machine, then do their job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip would compile every module of every package; Python compiles what is imported, once, if it may keep it. So let it,
# also where the machine says otherwise: every worker process would compile anew.
PIP_FLAGS := --quiet --disable-pip-version-check --no-compile
export PYTHONDONTWRITEBYTECODE :=

.PHONY: train test slow bench docs clean help

help: ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

$(BIN)/weft: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) -e .
	@touch $(BIN)/weft

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[dev]'
	@touch $(BIN)/weft $@

train: $(BIN)/weft ## train PPO on Gymnasium's CartPole-v1 and say where the run is
	$(BIN)/weft train ppo CartPole-v1 --seed 1

# Three tests at a time on two cores: a fifth of a test's time it waits for processes, sockets or seconds to pass.
test: $(VENV)/.dev ## lint, types and the whole test suite
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 3 --dist worksteal

slow: $(VENV)/.dev ## the tests that `make test` leaves out because they take long
	WEFT_SLOW=1 $(BIN)/python -m pytest -q -n 3 --dist worksteal -m slow

bench: $(VENV)/.dev ## every benchmark that runs here, as one table
	$(BIN)/python -m benchmarks

docs: pyproject.toml ## build the site from docs/ into site/, strictly
	@test -x $(BIN)/weft || $(MAKE) --no-print-directory $(BIN)/weft
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[docs]'
	$(BIN)/python docs/site.py site

clean: ## remove what the two commands made, runs excepted
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
