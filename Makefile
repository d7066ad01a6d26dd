# `make` lists the targets. Each makes the environment that it needs, in .venv.
#
#   PYTHON=python3.13   which Python makes it; default: python3, or the newest found
#   DJANGO=5.2          which series of Django it gets; default: the newest
#   VENV=.venv-3.13     where it is
#   POSTGRES=FOLDER     binaries of the PostgreSQL that tests run on, or 14, 16 or 17;
#                       default: the server of DATABASE_URL, or the embedded one
#   PROCESSES=3         share the tests, each with a server of its own (make slow: two,
#                       each with a JVM; make spark: one); 0: one does all, as always on
#                       DATABASE_URL
#   ARGS="-k claim -x"  arguments for the command behind demo, test, faults and bench
#
# PYTHON and DJANGO last: later makes keep what the environment has.

PYTHON ?=
DJANGO ?=
VENV ?= .venv
POSTGRES ?=
# How many of them share the tests, unless a server of somebody else's is given.
SHARE = $(if $(POSTGRES),$(1),$(if $(DATABASE_URL),0,$(1)))
PROCESSES ?= $(call SHARE,3)
ARGS ?=
export PYTHON DJANGO VENV

EXAMPLE := @sh .ci/environment.sh example
DEV := @sh .ci/environment.sh dev
ON_POSTGRES = $(if $(POSTGRES),python .ci/on_postgres.py '$(POSTGRES)' $(PROCESSES))
SHARED = -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --max-worker-restart=1
IN_MEMORY = python .ci/in_memory.py $(ON_POSTGRES)
PYTEST = $(IN_MEMORY) python -m pytest $(SHARED)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test near spark smoke versions pgbouncer slow matrix faults check docs bench format lint types layers migrations wheel example coverage clean

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 } \
		/^#  / { options = options substr($$0, 2) "\n" } \
		END { printf "\n%s", options }' $(MAKEFILE_LIST)

demo: ## the example at work: clients, a web server, and workers that get killed
	$(EXAMPLE) python -m example_project.demo $(ARGS)

test: ## the tests, but for Spark's and the slow ones; ARGS='-m ""' for all of them
	$(DEV) $(PYTEST) -m "not slow and not spark" $(ARGS)

near: ## the tests of what you have changed
	$(DEV) $(IN_MEMORY) python .ci/near.py $(ARGS)

spark smoke: override PROCESSES := $(if $(filter 0,$(PROCESSES)),0,1)
spark: ## the tests of Spark, in one process: they share a JVM, which uses all cores
	$(DEV) $(PYTEST) -m "spark and not slow" $(ARGS)

smoke: ## of the tests of Spark, what other versions get
	$(DEV) $(PYTEST) -m smoke tests/spark $(ARGS)

versions: ## of the tests, what versions change; DJANGO=6.0 POSTGRES=16 ARGS=--short
	$(DEV) $(IN_MEMORY) python .ci/versions.py $(ARGS) $(SHARED)

pgbouncer: ## of the tests, what goes through PgBouncer as users do; ARGS=tests/admin
	$(DEV) $(IN_MEMORY) python .ci/pgbouncer.py $(ARGS)

slow: PROCESSES = $(call SHARE,2)
slow: ## the slow tests: demonstrations, pipelines, soaks
	$(DEV) $(PYTEST) -m "slow and not faults" $(ARGS)

matrix: ## a third of the fault matrix at a tenth, by the commit, alone on the machine
	$(DEV) python .ci/in_memory.py python -m pytest -m faults tests/faults $(ARGS)

faults: ## the fault matrix at full size, and the broken builds; ARGS="--row K1 --seed 7"
	$(DEV) python -m tests.faults $(ARGS)

check: lint types layers migrations docs wheel test spark slow matrix ## what CI runs, the quick first

docs: ## the documentation, into docs/_build/html
	@echo "== docs"
	$(DEV) python -m sphinx -E -n -W --keep-going -q docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: ## throughput and latency on this machine
	$(EXAMPLE) python example_project/manage.py pgqueue_bench $(ARGS)

format: ## rewrite the code in the one format
	$(DEV) ruff check --fix-only --quiet
	$(DEV) ruff format

lint: ## format and style, without changing anything
	@echo "== lint"
	$(DEV) ruff format --check
	$(DEV) ruff check

types: ## mypy, of the package and of the example
	@echo "== types"
	@# mypy reads the settings, which start no server when they are given one.
	@DATABASE_URL=postgres:///unused sh .ci/environment.sh dev mypy
	@DATABASE_URL=postgres:///unused PYTHONPATH=example_project \
		sh .ci/environment.sh dev mypy --config-file example_project/mypy.ini

layers: ## the direction of imports
	@echo "== layers"
	$(DEV) lint-imports --no-logo

migrations: ## whether models and migrations agree
	@echo "== migrations"
	$(DEV) python -m django makemigrations --check --dry-run --settings=tests.settings
	$(DEV) python example_project/manage.py makemigrations --check --dry-run

wheel: ## build it, install it without extras in a fresh environment, run a job
	@echo "== wheel"
	$(DEV) python .ci/wheel_check.py

example: ## the example's own tests, with its own settings; `make test` runs them too
	@echo "== example"
	$(DEV) python example_project/manage.py test postoffice counters orders

coverage: ## all tests, and the lines and branches that none reaches
	$(DEV) python -m pytest --cov $(ARGS)

clean: ## delete what make made, except the data of the embedded PostgreSQL
	rm -rf .venv .venv.lock docs/_build .coverage .coverage.* htmlcov .hypothesis .pgqueue-tests \
		.mypy_cache .pytest_cache .ruff_cache .import_linter_cache
