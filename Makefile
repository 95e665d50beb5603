# One command for each thing. `make demo` and `make test` do all their own set-up: they need Python
# 3.11 or newer with venv, and make.

# The system's own Python where it is new enough: distributions build theirs with profiles of what
# Python does all day. What version managers compile is mostly built without, and a tenth slower.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	2> /dev/null && echo /usr/bin/python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test test-whole quick test-apache compare kafka-python-tests check format simulate replay soak bench scale connections groups-bench columns-bench spark-bench attacks mutants mutate fuzz judge-proof apache docs lock clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The set-up has two steps, each done once and again when its list changes: what running needs, and
# what working on the project needs on top. A stamp is written last, so that a broken step is redone.
$(VENV)/.run: requirements/build.txt requirements/run.txt pyproject.toml $(wildcard src/holdfast/wire/walker/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "holdfast needs Python 3.11 or newer; say which: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || test -x $(BIN)/python || \
		{ echo "Python's venv module is missing (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "setting up $(VENV) (once; PySpark alone is 500 MB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --require-hashes -r requirements/build.txt
	@# PySpark comes as a source package: it is built with what the line above installed.
	@$(PIP_INSTALL) --require-hashes --no-build-isolation -r requirements/run.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@$(PIP_INSTALL) --require-hashes --no-build-isolation -r requirements/dev.txt
	@touch $@

# What every JVM of the tests would load by itself, a third of its start; they do without as well.
$(VENV)/.classes: $(VENV)/.dev scripts/spark_classes.py tests/spark_conf/spark-defaults.conf
	@echo "keeping Spark's classes at hand (once, half a minute)"
	@$(BIN)/python scripts/spark_classes.py > /dev/null 2> $(VENV)/spark-classes.log || \
		echo "that can't be done here ($(VENV)/spark-classes.log says why): Spark's tests take longer"
	@touch $@

demo: $(VENV)/.run ## a cluster, a crash, a Spark table, and the evidence that nothing was lost
	@$(BIN)/holdfast demo $(ARGS)

# On all cores; what may not run beside each other is in one group (tests/lanes.py). "auto" has one
# worker more, for the while that others wait for processes; "logical" is a worker a core.
SLOWEST := --durations 15 --durations-min 5
# Hundreds of nodes are started: each would compile its modules again where nothing may be kept.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest

test: $(VENV)/.classes ## the test suite; of its longest tests a third, drawn from the code
	@$(PYTEST) -m "not apache" -n auto --in-turns $(SLOWEST) $(ARGS)

test-whole: $(VENV)/.classes ## the whole test suite
	@$(PYTEST) -m "not apache" -n auto $(SLOWEST) $(ARGS)

quick: $(VENV)/.dev ## of it all that needs no process, and fewer fresh seeds
	@HOLDFAST_TEST_CHUNKS=3 $(PYTEST) -m "not apache and not process" -n logical $(SLOWEST) $(ARGS)

test-apache: $(VENV)/.dev apache ## the tests that hold us against Apache Kafka
	@scripts/apache/kafka.sh available || { echo "test-apache: skipped, no Apache Kafka"; exit 0; } && \
		$(BIN)/pytest -m apache $(ARGS)

compare: $(VENV)/.run apache ## hundreds of steps against Apache Kafka and us: what is answered differently
	@cd scripts && $(abspath $(BIN))/python -m compare $(ARGS)

kafka-python-tests: $(VENV)/.dev ## kafka-python's own integration tests, from its source package, on a broker of ours
	@cd scripts && $(abspath $(BIN))/python -m kafka_python $(ARGS)

check: $(VENV)/.dev ## format, lint, types, imports, dead code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture

format: $(VENV)/.dev ## let ruff write what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# In the background, because it takes hours; with ARGS in the foreground.
soak: $(VENV)/.run ## hours of kills; writes results as it goes, and resumes
ifdef ARGS
	@eval "$$($(BIN)/python scripts/spark_classes.py --exports)"; $(BIN)/python -m holdfast.lab.soak $(ARGS)
else
	@mkdir -p runs
	@eval "$$($(BIN)/python scripts/spark_classes.py --exports)"; \
		nohup $(BIN)/python -m holdfast.lab.soak > runs/soak.log 2>&1 & \
		echo "soak runs as process $$!: log runs/soak.log, results docs/design/soak"
endif

# SEEDS=n fresh ones (FIRST=s names them), or SEED=s one again with its trace. JOBS=n processes,
# RESULTS=file to be appended to and gone on from; ARGS for the rest.
simulate: $(VENV)/.run ## a whole cluster broken in many ways, each from one seed
	@$(BIN)/python -m holdfast.testing.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),20)) \
		$(if $(FIRST),--first $(FIRST)) $(if $(JOBS),--jobs $(JOBS)) $(if $(RESULTS),--results $(RESULTS)) $(ARGS)

# ARGS=--find looks for schedules of the bugs first, where the simulator's code has changed.
replay: $(VENV)/.dev ## the simulator's schedules on real processes: seeds that are kept, bugs that are named (resumes)
	@$(BIN)/python scripts/replays.py $(ARGS)

mutants: $(VENV)/.dev ## bugs put in on purpose, each to be found (an hour; resumes)
	@$(BIN)/python scripts/mutants.py $(ARGS)

# In minutes; a row of results holds for one judge and one generator, and a second call goes on.
judge-proof: $(VENV)/.dev ## 10,000 made histories of which a model knows what the judge must find
	@$(BIN)/python -m tests.judge_proof $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000) \
		--results docs/design/judge-proof.jsonl) $(ARGS)

mutate: $(VENV)/.dev ## every small change of what is pure, which the tests have to notice (resumes)
	@$(BIN)/python scripts/mutate.py $(ARGS)

fuzz: $(VENV)/.dev ## an hour of hostile clients, while another one is served
	@cd scripts && $(abspath $(BIN))/python fuzz.py $(ARGS)

bench: $(VENV)/.run ## the figures, into bench/results/ and a table
	@$(BIN)/python bench/run.py $(ARGS)

# TMPDIR chooses the disk: what it costs to make a file there is most of what a partition costs.
scale: $(VENV)/.run ## ten partitions to ten thousand: figures, and curves in docs/design
	@$(BIN)/python bench/scale.py $(ARGS)

connections: $(VENV)/.run ## what 5,000 idle connections cost a broker, and 1,000 that ask now and then
	@$(BIN)/python bench/connections.py $(ARGS)

groups-bench: $(VENV)/.run apache ## how long groups take to settle, what heartbeats and commits cost (Apache Kafka)
	@$(BIN)/python bench/groups.py $(ARGS)

columns-bench: $(VENV)/.run ## what it costs to make columns of a log, over our client and over librdkafka
	@$(BIN)/python bench/columns.py $(ARGS)

spark-bench: $(VENV)/.run apache ## our Spark source beside the JVM connector, and beside the ceiling of the way
	@$(BIN)/python bench/spark.py $(ARGS)

attacks: $(VENV)/.run ## what hostile clients cost an honest one, beside the same CPU burnt elsewhere
	@$(BIN)/python bench/attacks.py $(ARGS)

apache: ## bring a pinned Apache Kafka and Spark's own connector into .cache/ (optional)
	@scripts/apache/fetch.sh

docs: $(VENV)/.run ## write the generated pages of docs/reference
	@$(BIN)/python scripts/reference.py

lock: $(VENV)/.dev ## write requirements/*.txt anew from requirements/*.in
	@scripts/lock.sh

clean: ## remove what tests and tools left behind
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist runs
	find src tests bench scripts -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## and the set-up itself: the virtual environment and Apache Kafka
	rm -rf $(VENV) .cache src/*.egg-info
