# make demo   all set-up, then the main job on an embedded broker
# make check  lint, types, and the tests that need neither broker nor Spark: before each commit
# make test   all set-up, then everything: lint, types, unit, real brokers, the installed command
# make corpus what the rules make of real dead letters that others have shown, and every miss
# make site   the documentation as pages, in site/
# make dist   all that a release consists of, in dist/, from what is committed

PYTHON ?= python3
BIN := .venv/bin
# Where it is set, each of the thousand processes of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
STAMP := .venv/.set-up

.PHONY: setup brokers demo check test lint test-without-brokers test-all bench corpus site dist clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "Python 3.11 to 3.13 is needed: install it, or call: make PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv \
		|| { echo "venv is missing: install it, on Debian with: sudo apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

brokers: setup
	@$(BIN)/python tests/support/needs.py java jdk ip maven rabbitmq rabbitmq4 activemq rocketmq kafka \
		postgres mariadb redis s3 worker-python chromium npm

demo: setup
	@$(BIN)/python tests/support/needs.py java
	@$(BIN)/dlq demo

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Brokers are waited for more than they work, so five workers do well on two cores. The many small files
# of tests/unit come last, so that no worker is left alone with a long one.
TEST_WORKERS ?= 5

check: setup
	@$(MAKE) --no-print-directory --jobs 2 lint test-without-brokers

test: brokers
	@$(MAKE) --no-print-directory --jobs 2 lint test-all

test-without-brokers: setup
	$(BIN)/python -m pytest --quiet --numprocesses $(TEST_WORKERS) --dist loadfile -m "not spark" tests/unit

test-all: setup
	$(BIN)/python -m pytest --quiet --numprocesses $(TEST_WORKERS) --dist loadscope --no-loadscope-reorder \
		tests/services tests/e2e tests/unit

bench: brokers
	$(BIN)/python bench/run.py

corpus: setup
	@PYTHONPATH=tests $(BIN)/python -m corpus.report

site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

dist:
	$(PYTHON) release/dist.py dist

clean:
	rm -rf .venv .brokers build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
