# Needs make and Python 3.11 or newer; everything else is installed into .venv (.venv-3.13, where .venv is of another version).
# PYTHON chooses the interpreter, TESTS what `make test` runs: make test TESTS="tests/test_files.py -x",
# FORMAT the format whose tests `make check` runs, BENCH the options of tests/benchmarks/bench.py, AGAINST another checkout that it compares with: make bench AGAINST=../before
# DIST is a folder of distributions that `make test-wheel` tries instead of building some.

PYTHON ?= python3
TESTS ?= tests
BENCH ?=
AGAINST ?=
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
MADE := $(shell sed -n 's/^version *= *\([0-9]*\.[0-9]*\).*/\1/p' .venv/pyvenv.cfg 2>/dev/null)
VENV := .venv$(if $(VERSION),$(addprefix -,$(if $(filter-out $(VERSION),$(MADE)),$(VERSION))))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

EXTRAS_bench := bench
EXTRAS_demo := openvino,litert
EXTRAS_test := test
EXTRAS_dev := dev
EXTRAS_tools := tools
EXTRAS_browser := browser
EXTRAS_fuzz := fuzz
EXTRAS_docs := docs

.PHONY: help demo test quick judges test-browser test-lowest test-wheel requirements docs check lint index tables format bench record clean fuzz fuzz-guided
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo ## Convert both sample networks to every format, verify each, print a table (2 minutes the first time)
	$(BIN)/python samples/demo.py --out out/demo

test: $(VENV)/.installed-test ## The whole test suite but the judges from outside, two processes
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not judges" $(TESTS)

judges: $(VENV)/.installed-test ## Samples of every format to every format, the written files in engines and validators from outside
	$(BIN)/python -m pytest -n 2 --dist worksteal -m judges $(TESTS)

test-browser: $(VENV)/.installed-browser ## Reports and views in a headless Chromium (apt: chromium chromium-driver)
	$(BIN)/python -m pytest -n 0 -m browser tests/report

quick: $(VENV)/.installed-test ## The everyday tests: without the slow ones and those of judges from outside
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not judges" $(TESTS)

ifdef FORMAT
# An environment for everything will do; an empty one gets the tools without the engines. One process: each would collect all tests.
check: $(if $(wildcard $(VENV)/.installed-dev),,$(VENV)/.installed-tools) ## Format, lint, types, and the everyday tests; FORMAT=zhouyi: those of one format, without types, engines and real networks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n 0 -m "not slow and not judges and not corpus" tests/formats tests/test_mapping_laws.py tests/layers -k $(FORMAT)
else
check: lint quick
endif

# What uses the packages most, not everything: the rest is above them.
LOWEST := tests/test_cli.py tests/test_cli_golden.py tests/test_readme.py tests/test_files.py tests/engines tests/batch \
	tests/report/test_report.py tests/formats/test_coreml_graph.py tests/formats/test_mlprogram.py tests/formats/test_onnx_models.py \
	tests/formats/test_openvino_engine.py tests/formats/test_tflite_files.py

test-lowest: ## The tests of the command line, engines and codecs with the lowest versions of all packages
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python .ci/lowest.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip --disable-pip-version-check install --quiet --constraint .venv-lowest/constraints.txt --editable '.[test]'
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal -m "not slow and not judges" $(LOWEST)

test-wheel: ## Build the distributions, install the wheel in a bare environment, follow the README there
	$(PYTHON) .ci/wheel.py out/wheel $(DIST)

requirements: ## Newer tools of a release, with their hashes (needs the package index)
	$(PYTHON) -m venv --clear out/requirements
	out/requirements/bin/python -m pip --disable-pip-version-check install --quiet pip-tools
	for name in build sbom audit; do out/requirements/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--output-file .ci/requirements/$$name.txt .ci/requirements/$$name.in || exit 1; done

docs: $(VENV)/.installed-docs ## The pages of docs/ as HTML, in out/docs
	$(BIN)/python docs/generate.py out/docs-source
	$(BIN)/python -m sphinx -q -W -b html out/docs-source out/docs
	@echo out/docs/index.html

lint: $(VENV)/.installed-dev ## Format, lint, words, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python .ci/words.py
	$(BIN)/mypy

index: $(VENV)/.installed-test ## Write the indexes of all rows anew, by which a conversion finds the modules that it needs
	$(BIN)/python tests/row_index.py

tables: $(VENV)/.installed-test ## How many kinds of layers of each format are rows, and of which fields; which rows have no sample
	$(BIN)/python tests/tables.py

format: $(VENV)/.installed-dev ## Reformat the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-bench ## Time and memory against cp, a bare click app and other tools (half an hour, 15 GB; BENCH="--only resnet50")
	$(BIN)/python tests/benchmarks/bench.py $(if $(AGAINST),--against $(AGAINST)) $(BENCH)

record: $(VENV)/.installed-test ## Rewrite the output in tests/cli, the README and the pages; read the diff
	$(BIN)/python -m pytest -n 0 tests/test_cli_golden.py tests/test_readme.py tests/test_docs.py --record

fuzz: $(VENV)/.installed-test ## 100,000 damaged files, 2,000 random networks through every format, 2,500 unusual graphs in engines (an hour)
	$(BIN)/python tests/fuzz.py --mutants 100000 --graphs 2000
	$(BIN)/python tests/unusual_graphs.py --count 2500

fuzz-guided: $(VENV)/.installed-fuzz ## Coverage-guided damage, a minute for each codec (atheris; Linux and macOS)
	$(BIN)/python tests/guided.py

clean: ## Remove the environments and everything made by other targets
	rm -rf .venv .venv-* out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# A stamp per set of extras: nothing is installed twice, and everything again when pyproject.toml changes.
$(VENV)/.installed-%: $(VENV)/.created pyproject.toml
	$(PIP) install --quiet --editable '.[$(EXTRAS_$*)]'
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "netconv needs Python 3.11 or newer: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	@touch $@
