# Two commands: `make demo` and `make test`. Both set up the environment first; nothing is needed but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SMK := $(wildcard Snakefile recipes/swbd/rules/*.smk)

.PHONY: demo test slurm soak lint format clean

demo: $(READY)   ## the embedded (synthetic) corpus through the whole recipe, to a WER table and a report
	$(BIN)/snakemake all --quiet host reason
	@cat exp/swbd/mini/report/wer.txt
	@echo "report: exp/swbd/mini/report/report.html"

test: $(READY)   ## the test suite
	$(BIN)/python -m pytest

slurm: $(READY)  ## on a Slurm of four nodes on this machine: the whole workflow, and every fault of a cluster (root, slurm-wlm)
	$(BIN)/python -m pytest -v --timeout 1600 tests/slurm/faults.py $(if $(TESTS),-k '$(TESTS)')

soak: $(READY)   ## eight learners with random delays for ten minutes: no deadlock, memory flat
	$(BIN)/python -m benchmarks.soak

lint: $(READY)   ## what CI asks of the code's form
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check $(SMK)
	$(BIN)/snakemake --lint

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt $(SMK)

clean:           ## what a demo's run made (the environment stays)
	rm -rf exp/swbd/mini .snakemake

$(READY): requirements.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"error: Python 3.11 or newer is needed, {sys.executable} is {v.major}.{v.minor}; name another: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --requirement requirements.txt
	@touch $@
