PYTHON ?= python3
CARGO ?= cargo
VENV ?= .venv
PY := $(VENV)/bin/python
# Always named together: a package on its own is compiled with features of its own, and the wheel would compile all of it again.
PACKAGES := -p graphmill-cli -p graphmill-client -p graphmill-python
export GRAPHMILL_BIN ?= $(or $(CARGO_TARGET_DIR),target)/release/graphmill
export GRAPHMILL_SESSION ?= $(or $(CARGO_TARGET_DIR),target)/release/examples/session
export GRAPHMILL_PARTITION ?= $(or $(CARGO_TARGET_DIR),target)/release/examples/partition
export GRAPHMILL_TRANSFORM ?= $(or $(CARGO_TARGET_DIR),target)/release/examples/transform

.PHONY: demo test test-rust test-oracle test-e2e bench venv build rewriters session wheel package clean

# Trains MNIST through a TensorFlow client. MNIST=folder takes the idx files from there.
demo: build venv
	$(PY) -m demo.mnist $(if $(MNIST),--data $(MNIST))

# Everything: unit tests, each op against TensorFlow's own server, programs end to end.
test: test-rust test-oracle test-e2e
	@echo 'all tests passed'

test-rust:
	$(CARGO) test --workspace --quiet

test-oracle: build venv
	$(PY) -m tests.oracle

test-e2e: build rewriters session package venv
	$(PY) -m pytest -q --tb=short -p no:cacheprovider tests/e2e

# TensorFlow's server and ours in turn; prints ratios. ONLY=name picks workloads.
bench: build venv
	$(PY) -m bench $(if $(ONLY),--only $(ONLY))

# The programs that split the variables of a graph, and that write the graphs of a job's tasks.
rewriters:
	$(CARGO) build --release --quiet -p graphmill-autodist --example partition --example transform

# The program that uses the client crate.
session:
	$(CARGO) build --release --quiet $(PACKAGES) --example session

# The Python package, in dist/.
wheel: venv
	rm -f dist/graphmill-*.whl
	$(PY) -m maturin build --release --quiet --manifest-path python/Cargo.toml --out dist

# The same, put into the virtual environment of the tests.
package: wheel
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall dist/graphmill-*.whl

build:
	$(CARGO) build --release --quiet $(PACKAGES) --bins

venv: $(VENV)/installed

$(VENV)/installed: requirements.txt requirements-alone.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-alone.txt
	touch $@

clean:
	$(CARGO) clean
	rm -rf $(VENV) .cache dist
