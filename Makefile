# The one door: every command a person or CI needs.
SHELL := /bin/bash
CACHE := $(or $(UNISTREAM_CACHE),$(HOME)/.cache/unistream)
UV := $(shell command -v uv 2>/dev/null || echo $(CACHE)/uv/bin/uv)
RUN := $(UV) run --frozen --no-sync
FAST := tests/unit tests/conformance tests/contract tests/tidy
# What is too long for the gate, in the order in which a night runs it.
NIGHTLY := test-nightly bounds-nightly equality-nightly random-nightly crash-matrix ha-matrix dagster-matrix versions-nightly browser screenshots-nightly sim-nightly
DAGSTER = $(shell $(RUN) python -c 'import dagster; print(dagster.__version__)')
NPM := $(shell command -v npm 2>/dev/null)
UI_PAGE := unistream/_ui/index.html
UI_PACKAGES := ui/node_modules/.package-lock.json
TIMES := $(UNISTREAM_GATE_TIMES)
TARGET ?= spark
REPEAT ?= 1
PORT ?= 3000
export UNISTREAM_CACHE := $(CACHE)
# Tests start hundreds of processes, each of which would compile again all that it imports: a worker needs 0.6 s
# instead of 0.3 s, Dagster 1.7 s instead of 0.7 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help prerequisites setup check format test budget test-fast test-nightly nightly crash-matrix ha-matrix dagster-matrix sim sim-masters sim-seeds sim-nightly random-nightly equality-nightly versions-nightly bounds-nightly conformance golden demo dev ui ui-build ui-check browser screenshots screenshots-nightly pictures bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

prerequisites:
	@bash deployments/local/prerequisites.sh "$(CACHE)"

setup: prerequisites  ## install what is missing, then the locked Python packages; with Node the web UI, too
	@$(UV) sync --frozen --all-extras --all-groups --quiet
	@$(RUN) unistream connectors compile & compiles=$$!; \
	  $(if $(NPM),$(MAKE) --no-print-directory ui-build || echo "the web UI is not built (see above); all else works";) wait $$compiles

check: setup  ## format, lint, types, layers
	@$(RUN) ruff format --check .
	@$(RUN) ruff check .
	@$(RUN) mypy --cache-dir $(CACHE)/mypy  # by what files contain: another checkout has it, too
	@$(RUN) lint-imports --no-cache >/dev/null && echo "layers: kept"

format: setup  ## rewrite the sources as `check` wants them
	@$(RUN) ruff check --fix --quiet . ; $(RUN) ruff format .

# One session of four workers, in which tests that wait for a broker stand between tests that compute (tests/spread.py).
# Who has none left takes over from others. None is run twice: a test that fails on a busy machine asserts a time, or
# shows a race.
test: export UNISTREAM_GATE_TIMES := $(or $(TIMES),$(CURDIR)/.gate-times)
test: setup  ## all tests, with a real Kafka, a real Spark and real kills; then what each part has taken
	@$(if $(TIMES),,rm -f .gate-times)
	@$(RUN) python -m tests.spark_start
	@$(RUN) pytest -q -n 4 --dist worksteal --durations=15 $(FAST) tests/simulation tests/equality tests/integration
	@$(if $(TIMES),,$(MAKE) --no-print-directory budget)

budget:
	@$(RUN) python -m tests.budget

test-fast: setup  ## the tests that start no server
	@$(RUN) pytest -q -n 2 --dist worksteal $(FAST)

# Tests of pandas and of Dagster's dg need them installed, and no other test has them. Pyright reads the programs that mypy reads in `check`.
test-nightly: setup  ## the long tests that `make test` leaves out
	@$(RUN) python -m tests.spark_start
	@$(RUN) --with "pandas>=2.2,<4" pytest -q tests/pandas
	@$(RUN) --with dagster-dg-cli==$(DAGSTER) --with dagster-shared==$(DAGSTER) pytest -q tests/dg
	@$(RUN) --with basedpyright==1.31.4 basedpyright -p tests/typed
	@UNISTREAM_NIGHTLY=1 UV=$(UV) $(RUN) pytest -q -n 3 --dist worksteal $$(grep -v "^\#" tests/nightly.txt | sed "s/::.*//" | sort -u)

nightly: setup  ## all that is long, for hours: goes on where it was stopped, and prints one table
	@$(RUN) python -m tests.night $(NIGHTLY)

bounds-nightly: setup  ## how long somebody waits for another leader, a list, an end: measured, and what is wanted
	@$(RUN) python -m tests.spark_start
	@$(RUN) python -m benchmarks.bounds --table

crash-matrix: setup  ## a run for each place at which a process can be killed, and 2 GB of state; goes on where it was stopped
	@UNISTREAM_CRASH_MATRIX=1 UNISTREAM_GOES_ON=$(CACHE)/nightly/crash-matrix.passed $(RUN) pytest -q -n 2 --dist worksteal -p no:randomly $$(grep -lwE "in_the_gate|MATRIX|OF_MATRIX" tests/integration/test_*.py tests/contract/test_*.py tests/contract/sinks/test_*.py)
	@$(RUN) python -m benchmarks.large_state --gb 2 --memory-mb 512 --points all

ha-matrix: setup  ## several masters: long outages of ZooKeeper, of a database and a disk, and a Spark cluster
	@UNISTREAM_HA_MATRIX=1 $(RUN) pytest -q -s -p no:randomly tests/integration/test_several_masters*.py

dagster-matrix: setup  ## streams under Dagster's daemon and webserver, which are killed; the tour; make dev on Spark
	@UNISTREAM_DAGSTER_MATRIX=1 $(RUN) pytest -q -p no:randomly tests/integration/test_dagster_service*.py tests/integration/test_dagster_backfill_service.py tests/integration/test_dagster_tour.py tests/integration/test_dagster_stack.py

sim: setup  ## replay one simulated run and print its story; SEED=N
	@$(RUN) python -m tests.support.seeds --seed $(or $(SEED),0) --story

sim-masters: setup  ## the same with several masters; SEED=N
	@$(RUN) python -m tests.support.seeds --masters --seed $(or $(SEED),0) --story

sim-seeds: setup  ## look for seeds that reach the rare branches of a simulation, for tests/simulation/reached_by*.txt
	@$(RUN) python -m tests.simulation.reached_by
	@$(RUN) python -m tests.simulation.reached_by --masters

sim-nightly: setup  ## all tests of the simulation with many seeds; 100,000 runs, and 20,000 with several masters
	@UNISTREAM_SIM_NIGHT=1 $(RUN) pytest -q -n 2 --dist worksteal tests/simulation
	@$(RUN) python -m tests.support.seeds --seeds 0:100000 --jobs 2
	@$(RUN) python -m tests.support.seeds --masters --seeds 0:20000 --jobs 2

random-nightly: setup  ## 500 new random examples for every property, four times over
	@for round in $$(seq 4); do \
	  $(RUN) pytest -q -n 2 --dist worksteal -m hypothesis --hypothesis-profile=random $(FAST) || exit 1; done

equality-nightly: setup  ## random pipelines over random rows: STREAMING, BATCH, Spark and plain Python agree
	@for round in $$(seq 5); do \
	  $(RUN) pytest -q -n 2 -m hypothesis --hypothesis-profile=random tests/equality || exit 1; done
	@$(RUN) pytest -q -n 2 --hypothesis-profile=random tests/equality/test_planted.py

versions-nightly: setup  ## the fast part and a job of each connector, with the oldest and the newest versions; EDGE=oldest|newest
	@UV=$(UV) $(RUN) python -m tests.versions $(EDGE)

conformance: setup  ## what Flink does, case by case
	@$(RUN) python -m tests.support.conformance tests/conformance

golden: setup  ## write the golden files anew; look at the difference before you commit it
	@UNISTREAM_GOLDEN=write $(RUN) pytest -q -p no:randomly tests/unit/core/job/test_golden.py tests/unit/model/test_model_codec.py tests/unit/cli/test_cli_screens.py

demo: setup  ## Kafka -> Spark -> Delta with a kill in the middle; TARGET=spark|local REPEAT=N KEEP=1 PORT=N
	@$(RUN) python -m dagster_defs.demo --target $(TARGET) --repeat $(REPEAT) --port $(PORT) $(if $(KEEP),--keep)

dev: setup  ## Dagster's UI, a session cluster, and flights that arrive all the time; TARGET=spark|local PORT=N
	@$(RUN) python -m dagster_defs.dev --target $(TARGET) --port $(PORT)

$(UI_PACKAGES): ui/package-lock.json
	@cd ui && npm ci --silent && touch node_modules/.package-lock.json

$(UI_PAGE): $(UI_PACKAGES) $(shell find ui -type f -not -path "ui/node_modules/*" -not -name schema.ts 2>/dev/null)
	@cd ui && npm run --silent build && touch ../$(UI_PAGE)

ui-build: $(UI_PAGE)  ## the web UI that a JobManager serves at /; needs Node 20 or newer

ui: $(UI_PACKAGES)  ## the web UI from its sources, over a JobManager; MASTER=http://127.0.0.1:8081
	@cd ui && npm run --silent generate && UNISTREAM_MASTER=$(or $(MASTER),http://127.0.0.1:8081) npm run dev

# Two minutes of a processor, and all that it reads stands in ui/: what has passed once is not checked again.
UI_DIGEST = { node --version; find ui -type f -not -path "ui/node_modules/*" -not -name schema.ts -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; } | sha256sum | cut -c 1-64

ui-check: $(UI_PACKAGES)  ## types, lint and tests of the web UI, unless these very files have passed; AGAIN=1
	@passed=$(CACHE)/ui-passed/$$($(UI_DIGEST)); \
	if [ -f $$passed ] && [ -z "$(AGAIN)" ]; then echo "web UI: unchanged since it passed"; exit 0; fi; \
	(cd ui && npm run --silent generate >/dev/null && { npm run --silent lint & \
		npm run --silent types && npm run --silent test; taken=$$?; wait $$! && exit $$taken; }) && \
	mkdir -p $(CACHE)/ui-passed && touch $$passed

browser: setup  ## Dagster's UI and the web UI in a real browser: as somebody uses them; installs Chromium
	-@bash deployments/local/browser.sh
	@$(RUN) pytest -q -rs tests/browser

screenshots: setup  ## the pictures in docs/; ONLY=dagster|ui|incidents; installs Chromium
	@bash deployments/local/browser.sh
	@$(RUN) python -m tests.browser.screenshots $(if $(ONLY),--only $(ONLY))

screenshots-nightly: setup  ## the pictures in docs/ are of the product as it looks today: taken again, and compared
	@bash deployments/local/browser.sh
	@rm -rf $(CACHE)/nightly/screenshots
	@$(RUN) python -m tests.browser.screenshots --folder $(CACHE)/nightly/screenshots
	@$(RUN) python -m tests.browser.likeness $(CACHE)/nightly/screenshots docs/pictures

pictures: setup  ## what `make browser` compares pages of the web UI with, made again; look at those that differ before you commit them
	@bash deployments/local/browser.sh
	@UNISTREAM_PICTURES_RENEW=1 $(RUN) pytest -q -p no:randomly tests/browser/test_browser_drawn.py

bench: setup  ## figures, one JSON line each
	@$(RUN) python -m benchmarks.windowed_count
	@$(RUN) python -m benchmarks.kafka_to_delta

clean:  ## remove what the tools left in this folder
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
