# Everything is built into .venv at the root; a fresh machine needs Python 3.11, cargo and a C++ compiler.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.10.0
TORCH_NPU := torch-npu==2.10.0.post4
SIM := tests/cann-sim/run
# What lint and the formatter look at.
CPP := $(wildcard cpp/*.cpp cpp/*.h tests/cann-sim/shim/*.cpp)
LIBRARY_SOURCES := $(wildcard cpp/* src/*.rs src/*/* setup.py pyproject.toml Cargo.toml Cargo.lock build.rs)

.PHONY: all build demo test test-rust test-python lint format bench clean

all: build

# torch is asked for by its exact version; torch_npu's wheel asks for torch's CPU build under another version, hence no deps.
$(VENV)/.environment: Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet 'setuptools>=77,<81' wheel 'setuptools-rust>=1.10' numpy pyyaml $(TORCH)
	$(BIN)/pip install --quiet --no-deps $(TORCH_NPU)
	$(BIN)/pip install --quiet pytest pytest-timeout hypothesis expecttest ruff==0.14.* clang-format==21.*
	touch $@

$(VENV)/.library: $(VENV)/.environment $(LIBRARY_SOURCES)
	$(BIN)/pip install --quiet --no-build-isolation --no-deps -e .
	touch $@

build: $(VENV)/.library

demo: build
	$(BIN)/infini-rearrange demo --sim $(SIM)

test: test-rust test-python

test-rust:
	cargo test --workspace

# Two worlds: torch alone, and the real torch_npu on the simulated CANN, there on each SoC and version that behaves differently.
test-python: build
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(BIN)/python -m pytest tests/python/cpu
	$(SIM) $(BIN)/python -m pytest tests/python/sim
	CANN_SIM_SOC=Ascend950PR_9599 CANN_SIM_VERSION=9.1.0 $(SIM) $(BIN)/python -m pytest tests/python/npu
	for platform in Ascend950PR_9599/9.1.0.pre Ascend910B1/8.5.0 Ascend910B1/9.1.0; do \
	    CANN_SIM_SOC=$${platform%/*} CANN_SIM_VERSION=$${platform#*/} \
	    $(SIM) $(BIN)/python -m pytest tests/python/npu -m every_platform || exit 1; \
	done

lint: $(VENV)/.environment
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	PYO3_PYTHON=$(abspath $(BIN)/python) cargo clippy --features torch-npu --lib --release -- -D warnings
	$(BIN)/ruff check python tests setup.py
	$(BIN)/ruff format --check python tests setup.py
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(VENV)/.environment
	cargo fmt --all
	$(BIN)/ruff check --fix python tests setup.py
	$(BIN)/ruff format python tests setup.py
	$(BIN)/clang-format -i $(CPP)

bench: build
	$(SIM) $(BIN)/infini-rearrange bench hook

clean:
	cargo clean
	rm -rf build python/*.egg-info python/infini_rearrange/*.so
