# One command per verb; CI runs these and nothing else. Each prepares what it needs (scripts/prepare.py).
#   make PYTHON=/path/to/python3.11 ...     another Python
#   WORMHOLE_BUILD_EXT=yes|no make ...      insist on the compiled hot modules, or run them interpreted
.DEFAULT_GOAL := help
.PHONY: help demo test extended check bench quickstart-test claims fuzz soak coverage mutants proto dist lock build format conformance prepare-demo prepare-dev

# A run starts hundreds of processes. Without byte code each compiles the tree again, and each worker every test.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
RUN := .venv/bin/python
ARGS ?=
CASE ?=
CLIENT ?= $(RUN) -m conformance.clients.python
DECLARES ?=
SECONDS ?= 60
SEED ?= 1
ROUNDS ?= 200
DATASTORE ?= rocksdb
# Every file with a long form is in here (tests/unit/scripts/test_soak.py).
SOAK := tests/system tests/hostile tests/property tests/simulation tests/benchmarks tests/docs/test_quickstart_page.py tests/docs/test_existing_rows_page.py \
	tests/integration/test_mixed_tables.py tests/integration/test_odd_settings.py tests/integration/test_mysql_differential.py tests/integration/test_mysql_statements.py \
	tests/integration/test_mysql_existing_rows.py tests/integration/test_mysql_existing_keys.py tests/integration/test_rocksdb_restored.py \
	tests/integration/test_postgres_existing_rows.py tests/integration/test_postgres_histories.py tests/integration/test_random_ddl.py tests/integration/test_peers_failover.py tests/integration/test_sink_partial_images.py tests/integration/test_sink_tables.py \
	tests/integration/test_capture_order.py tests/integration/test_capture_statements.py tests/integration/test_sqlite_disasters.py tests/integration/test_sqlite_source.py \
	tests/unit/datastores/mysql/server/test_bounded_connection.py tests/unit/spark_replay/test_selected.py \
	tests/unit/spark_replay/archive/test_reader.py tests/unit/subscriber_sdk/work/test_parallel.py tests/unit/wormholectl/models/test_commands.py \
	tests/unit/spark_replay/archive/test_store.py tests/unit/spark_replay/archive/test_checkpoints.py \
	tests/unit/spark_replay/archive/test_storage.py

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r verb text; do \
		printf '  make %-15s %s\n' "$$verb" "$$text"; done

demo: prepare-demo ## a live store, publisher and subscribers, two kills, and the count of what arrived [DATASTORE=mysql|postgres ARGS="--seed 1 --json"]
	@$(RUN) -m examples.demo --datastore $(DATASTORE) $(ARGS)

test: prepare-dev ## the suite, with the hot modules in both forms [ARGS="-k name"]
	@$(RUN) -m scripts.suite $(ARGS)

extended: prepare-dev ## the longer tests that `make test` leaves out and CI runs too
	@$(RUN) -m scripts.suite --extended

check: prepare-dev ## style, types, import directions, generated code, maps, links and mutants that fit
	@$(RUN) -m scripts.check

bench: prepare-dev ## figures and bench.json [CASE=throughput|latency|caravans|mysql|existing_rows|operate|many_flows|replay|replay_scale|peers|postgres|postgres_slots|relay ARGS="..." PROFILE=1 for flame graphs]
	@PROFILE=$(PROFILE) $(RUN) -m benchmarks $(if $(CASE),--only $(CASE)) $(ARGS)

quickstart-test: prepare-dev ## docs/quickstart.md and README.md as readers follow them, with seconds per step [ARGS="MySQL RocksDB"]
	@$(RUN) -m scripts.quickstart $(ARGS)
	@$(RUN) -m pytest -q tests/docs/test_readme.py

claims: prepare-dev ## the tests that docs/compare.md names as proofs: all exist, run and pass
	@$(RUN) -m scripts.claims

fuzz: prepare-dev ## every decoder in both forms [SECONDS=60 SEED=1]
	@$(RUN) -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

soak: prepare-dev ## every long round: kill -9, disasters, outages, statements on servers, properties, the largest events [ROUNDS=200]
	@WORMHOLE_ROUNDS=$(ROUNDS) HYPOTHESIS_PROFILE=soak $(RUN) -m pytest $(SOAK) -s --timeout=0 $(ARGS)
	@$(if $(ARGS),,WORMHOLE_ROUNDS=$(ROUNDS) HYPOTHESIS_PROFILE=soak $(RUN) -m pytest tests/unit -m hypothesis --timeout=0)

conformance: prepare-dev ## whether a subscriber keeps the push protocol [CLIENT="command" DECLARES=client.toml ARGS="epochs/*"]
	@$(RUN) -m conformance --client "$(CLIENT)" $(if $(DECLARES),--declares $(DECLARES)) $(ARGS)

coverage: prepare-dev ## the suite, and its branch coverage of all packages, which may not fall
	@$(RUN) -m scripts.suite --coverage $(ARGS)

mutants: prepare-dev ## small faults, one at a time: the suite must go red on each [ARGS="name ..."]
	@$(RUN) -m tests.mutants $(ARGS)

proto: prepare-dev ## wormhole/wire/v1 anew from proto/
	@$(RUN) -m scripts.proto

dist: prepare-dev ## sdist, wheels, SBOM and checksums into dist/, each wheel tried in an environment of its own
	@$(RUN) -m scripts.dist

lock: prepare-dev ## requirements.lock anew from pyproject.toml [ARGS="--upgrade-package NAME"]
	@$(RUN) -m scripts.lock $(ARGS)

build: prepare-dev ## prepare everything and compile the hot modules, no more
	@$(RUN) -c "from tests.support.hot import describe; print(*describe(), sep='\n')"

format: prepare-dev ## let ruff format and fix what it can
	@$(RUN) -m ruff check --quiet --fix . ; $(RUN) -m ruff format --quiet .

prepare-demo:
	@$(PYTHON) -m scripts.prepare demo$(patsubst %,-%,$(filter-out rocksdb,$(DATASTORE)))

prepare-dev:
	@$(PYTHON) -m scripts.prepare dev
