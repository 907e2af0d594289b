# make demo   a guided tour on an embedded broker, with nothing but the libraries of dlq (Spark's step after make setup)
# make check  lint, types, and the quick tests that need neither broker nor Spark: before each commit
# make test   all set-up, then the check and each promise on real brokers, of the newest version: before a merge
# make test-all  everything, on all versions: before a release; ONLY=rabbitmq: what concerns one broker
# make frameworks  real clients and frameworks: their letters die, are classified, go back, and are taken
# make corpus what the rules make of real dead letters that others have shown, and every miss
# make site   the documentation as pages, in site/
# make lock   the lists of libraries, with their hashes, after a change of pyproject.toml or requirements/*.in
# make dist   all that a release consists of, in dist/, from what is committed

PYTHON ?= python3
BIN := .venv/bin
# Where it is set, each of the thousand processes of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
STAMP := .venv/.set-up
DEMO_STAMP := .venv/.demo

.PHONY: setup brokers programs newest demo check test test-all lint unit promises every-test bench frameworks corpus site lock dist clean

setup: $(STAMP)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "Python 3.11 to 3.13 is needed: install it, or call: make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv \
		|| { echo "venv is missing: install it, on Debian with: sudo apt-get install python3-venv"; exit 1; }

$(STAMP): pyproject.toml requirements/build.txt requirements/dev.txt | $(BIN)/python
	@echo "Fetching the libraries of dlq and of its tests into .venv (1.5 GB there; kept in pip's cache) ..."
	@$(BIN)/python tests/support/libraries.py dev
# Once, so that the workers of the tests, who all begin with this, find compiled what they import.
	-@$(BIN)/python -m pytest --quiet --collect-only tests/unit > .venv/collected
	@touch $@

# What `make demo` needs. Where all are installed already, it takes those.
$(DEMO_STAMP): pyproject.toml requirements/build.txt requirements/demo.txt | $(BIN)/python
	@echo "Fetching the libraries of dlq into .venv (92 MB to fetch, 300 MB there; kept in pip's cache) ..."
	@$(BIN)/python tests/support/libraries.py demo
	@touch $@

brokers: setup programs
	@$(BIN)/python tests/support/needs.py worker-python frameworks

# Programs need none of the libraries, and so can be fetched beside them.
programs: | $(BIN)/python
	@test -e .brokers || echo "Fetching brokers, servers and other clients into .brokers (1.3 GB there) and by apt-get ..."
	@$(BIN)/python tests/support/needs.py java jdk ip gpg maven rabbitmq rabbitmq4 activemq rocketmq kafka \
		postgres mariadb redis s3 chromium npm caddy promtool

# Of them what `make test` runs.
newest: | $(BIN)/python
	@test -e .brokers || echo "Fetching RabbitMQ 4, ActiveMQ 6, Artemis, RocketMQ 5, Kafka and an S3 server into .brokers (0.7 GB there)," \
		"and by apt-get what the machine lacks of Java, Maven, PostgreSQL and Chromium ..."
	@$(BIN)/python tests/support/needs.py java jdk maven rabbitmq4 activemq6 rocketmq5 kafka postgres s3 chromium

demo: $(or $(wildcard $(STAMP)),$(DEMO_STAMP))
	@$(BIN)/dlq demo

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Brokers are waited for more than they work: five workers wait for them, and a sixth computes meanwhile. Unit
# tests work, and each worker takes six seconds of CPU to import and collect them. All versions, faults and clusters
# are waited for more still.
TEST_WORKERS ?= 6
UNIT_WORKERS ?= 4
PYTEST = $(BIN)/python -m pytest --quiet --numprocesses $(TEST_WORKERS) --dist loadscope --no-loadscope-reorder

check: setup
	@$(MAKE) --no-print-directory --jobs 2 lint unit

test:
	@$(MAKE) --no-print-directory --jobs 2 setup newest
	@$(BIN)/python tests/support/needs.py frameworks
	@$(MAKE) --no-print-directory --jobs 2 lint promises

test-all:
	@$(MAKE) --no-print-directory --jobs 2 brokers
	@$(MAKE) --no-print-directory --jobs 2 lint every-test

unit:
	$(BIN)/python -m pytest --quiet --numprocesses $(UNIT_WORKERS) --dist loadfile -m "not (spark or slow or thorough)" tests/unit

promises:
	$(PYTEST) -m "not (thorough or frameworks)" tests

every-test: TEST_WORKERS = 8
every-test:
	$(PYTEST) --hypothesis-profile every -m "not frameworks" $(if $(ONLY),-k "$(ONLY)") tests

bench: brokers
	$(BIN)/python bench/run.py

frameworks: brokers
	$(BIN)/python tests/frameworks/clients.py
	$(BIN)/python -m pytest --quiet --numprocesses 2 --dist loadscope --no-loadscope-reorder tests/frameworks

corpus: setup
	@PYTHONPATH=tests $(BIN)/python -m corpus.report

site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lock: setup
	$(BIN)/python requirements/lock.py

dist:
	$(PYTHON) release/dist.py dist

clean:
	rm -rf .venv .brokers build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
