# make study   install, then find a faster (simulated) server with the embedded defaults
# make test    install, then pass the tests
# The others are listed in CONTRIBUTING.md.
PYTHON ?= python3
# Compiled modules are kept: without them every server start and every test pays for compiling again.
unexport PYTHONDONTWRITEBYTECODE

VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv

.PHONY: install study test unit check format engines docs bench-loadgen bench-search bench-classify bench-history bench-proof faults wheel lock clean

install: $(VENV)/.installed

# The lock names every package with its hashes; uv only makes installing it fast.
$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tuner needs Python 3.11 or newer")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

study: install
	$(BIN)/tuner study start --space quickstart.yaml --yes

# Three at a time on two cores, here and in `unit`, since much of the time is waiting; whole studies and engines come
# first, as collected, so that no long file is left for the end.
test: install
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder tests

unit: install
	$(BIN)/pytest -n 3 --dist worksteal -m 'not slow' tests/unit

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Real vLLM and real SGLang on the CPU, each in an environment of its own, and a small model for them.
engines: install
	$(BIN)/python tools/engines/setup.py all
	$(BIN)/python tools/make_model.py --size mid -o .cache/models/mid
	$(BIN)/python tools/make_model.py --size tiny -o .cache/models/tiny

docs: install
	$(BIN)/python docs/generate.py

bench-loadgen: install
	$(BIN)/python -m benchmarks.loadgen

bench-search: install
	$(BIN)/python -m benchmarks.search

bench-proof: install
	$(BIN)/python -m benchmarks.proof

bench-history: install
	$(BIN)/python -m benchmarks.history

bench-classify: install
	$(BIN)/python -m benchmarks.classify

faults: install
	$(BIN)/python -m benchmarks.faults

wheel: install
	$(UV) build --quiet --wheel --out-dir dist

# The only place where versions are chosen.
lock:
	$(UV) pip compile --quiet --universal --python-version 3.11 --group dev --generate-hashes --no-header \
		--no-emit-index-url --upgrade pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
