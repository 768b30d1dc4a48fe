# `make help` lists the targets. Each installs what it needs.

.DEFAULT_GOAL := help
SHELL := /bin/sh
GO ?= go
TOOLS := $(CURDIR)/bin/tools

# The versions of the tools are part of the project: they are built from the module proxy into bin/tools.
GOLANGCI_VERSION := v2.15.0
GOFUMPT_VERSION := v0.12.0
WORKFLOWCHECK_VERSION := v0.6.0
GOTESTSUM_VERSION := v1.13.0
GOLANGCI := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
GOFUMPT := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)
WORKFLOWCHECK := $(TOOLS)/workflowcheck-$(WORKFLOWCHECK_VERSION)
GOTESTSUM := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)

VERSION ?=
LDFLAGS := -s -w $(if $(VERSION),-X main.version=$(VERSION))
PAGE := api/console/dist/index.html
PAGE_SOURCES := $(shell find api/console -type d \( -name node_modules -o -name dist -o -name tests \) -prune -o -type f -print)
GO_FILES = $$(find . -name '*.go' -not -path '*/node_modules/*')

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# SQLite is C code translated to Go. Its memory is outside the Go heap, where the race detector ignores accesses, so its
# instrumentation and its checks of pointers find nothing and make every statement several times slower. The driver itself is instrumented.
RACE := -race -gcflags='modernc.org/libc/...=-race=false -d=checkptr=0' -gcflags='modernc.org/sqlite/lib=-race=false -d=checkptr=0'

.PHONY: run
run: ## Start everything in one process: Temporal, Redis, database, model, workers, API, page
	@scripts/setup.sh run
	@$(MAKE) --no-print-directory build
	@exec bin/berth-dev

# Without TEMPORAL_DEBUG, Temporal's SDK fails a workflow task that computes for a second, and on a machine that is busy
# with the race detector any of them may. The tests of ./tests run alone: they measure nothing, but wait for servers. They run the
# binaries that users run, so the race detector would see the tests only.
.PHONY: test
test: export TEMPORAL_DEBUG = 1
test: $(GOTESTSUM) ## Run all tests on real servers, those of packages with the race detector
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory build-demo
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	@GOTESTSUM=$(GOTESTSUM) RESULTS=$(RESULTS) scripts/test.sh $(MAKE) --no-print-directory

# A failed test is run a second time, alone, unless the race detector reported it or more than eight failed: these tests use real servers,
# and a busy machine may stop any of them for seconds. scripts/test.sh lists such tests at the end: each is a defect of berth or of the test.
RESULTS := $(CURDIR)/bin/test
gotest = $(GOTESTSUM) --format pkgname-and-test-fails --format-icons text --hide-summary skipped,output \
	--rerun-fails=1 --rerun-fails-max-failures=8 --rerun-fails-abort-on-data-race --rerun-fails-run-root-test \
	--rerun-fails-report=$(RESULTS)/$(1).rerun --jsonfile-timing-events=$(RESULTS)/$(1).json --packages="$(2)" -- $(3)

.PHONY: test-stack test-lua test-units test-dev test-deploy test-page
test-stack:
	@$(call gotest,stack,./tests,-parallel 4 -timeout 60m)

# The packages that take longest are first, so that the others run beside them.
test-units:
	@$(call gotest,units,$$($(GO) list ./api ./internal/ledger ./... | grep -v -e '^berth/tests$$' -e '^berth/lua$$' | tr '\n' ' '),$(RACE) -p 2 -timeout 20m)

# What these tests check runs in Redis, whose races the detector does not see; without it they take half the time.
test-lua:
	@$(call gotest,lua,./lua,-timeout 20m)

test-dev:
	@cd dev && $(call gotest,dev,./...,-p 1 -timeout 10m)

test-deploy:
	@cd deploy && $(call gotest,deploy,./...,-timeout 10m)

test-page:
	@if command -v npm >/dev/null 2>&1; then cd api/console && npm test --silent; else echo "test: npm not found, skipping the tests of the page" >&2; fi

.PHONY: check
check: export TEMPORAL_DEBUG = 1
check: $(GOFUMPT) $(GOLANGCI) $(WORKFLOWCHECK) ## Check words, format, lint, determinism and recorded histories of workflows, API description, page, generated files, modules
	@scripts/words.sh
	@scripts/setup.sh test
	@unformatted=$$($(GOFUMPT) -l $(GO_FILES)); test -z "$$unformatted" || { echo "not formatted (make fmt):" $$unformatted >&2; exit 1; }
	$(GOLANGCI) run --allow-parallel-runners ./...
	cd dev && $(GOLANGCI) run --allow-parallel-runners ./...
	cd deploy && $(GOLANGCI) run --allow-parallel-runners ./...
	$(WORKFLOWCHECK) ./workflows/...
	$(GO) test -count=1 -run '^TestWorkflows_' ./workflows
	$(GO) test -count=1 -run 'TestDescription_Generated_EqualsCheckedIn' ./api
	@scripts/console.sh check
	$(GO) mod tidy -diff
	cd dev && $(GO) mod tidy -diff
	cd deploy && $(GO) mod tidy -diff

.PHONY: fmt
fmt: $(GOFUMPT) ## Format the Go files
	@$(GOFUMPT) -l -w $(GO_FILES)

.PHONY: generate
generate: ## Regenerate api/openapi.yaml
	$(GO) test -count=1 -run 'TestDescription_Generated_EqualsCheckedIn' ./api -update

# The tests of the files that name a history, but for those with the tag faults.
.PHONY: histories
histories: export TEMPORAL_DEBUG = 1
histories: build ## Record the histories of workflows again, until the first release
	@scripts/setup.sh test
	rm -f workflows/testdata/*.json
	@$(GO) test -count=1 -parallel 4 -timeout 30m ./tests -record -run "^($$(grep -lE '\.save(Task|History|Run)\(|\.(end|awaitEnd|link)\(.*"(conference|link)-' tests/*_test.go | \
		xargs sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' | paste -sd '|'))$$"
	$(GO) test -count=1 -run '^TestWorkflows_' ./workflows

.PHONY: build
build: page ## Build the programs berth, berth-bench, berth-dev and berth-sim into bin, with the page if Node is installed
	@test -x bin/berth-dev || echo "build: the first build compiles Temporal's server and takes several minutes; later ones take seconds"
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...
	cd dev && $(GO) build -ldflags '$(LDFLAGS)' -o ../bin/berth-dev . && $(GO) build -ldflags '$(LDFLAGS)' -o ../bin/berth-sim ./sim

# Only the demonstration and its test need these.
.PHONY: build-demo
build-demo: build
	@cd dev && $(GO) build -o ../bin/berth-demo ./demo
	@$(GO) build -o bin/berth-demo-batch ./examples/openai/batch

.PHONY: bench
bench: build ## Measure berth against its baselines; BENCH=slots SCALE=0.1 DOCS=docs REPORT=FILE as in scripts/bench.sh
	@REPORT='$(REPORT)' DOCS='$(DOCS)' SCALE='$(SCALE)' scripts/bench.sh $(BENCH)

.PHONY: demo
demo: ## Run five programs of OpenAI's protocol with faults, beside another gateway; fail if a line of the scoreboard is false
	@scripts/setup.sh run
	@scripts/npm.sh examples/openai && scripts/npm.sh examples/openai/portkey
	@$(MAKE) --no-print-directory build-demo
	@exec bin/berth-demo

.PHONY: proof
proof: export TEMPORAL_DEBUG = 1
proof: build-demo ## Run the long fault tests and list all failures; SEED=n repeats a run
	@scripts/setup.sh test
	@SEED=$(SEED) GO=$(GO) scripts/proof.sh

.PHONY: conformance
conformance: ## Run the cases of dotprompt: CASES is the directory spec of google/dotprompt
	@test -d '$(CASES)' || { echo "conformance: CASES names no directory: make conformance CASES=DIR" >&2; exit 2; }
	$(GO) test -count=1 -v -tags conformance -run '^TestConformance' ./internal/dotprompt -args -cases '$(abspath $(CASES))'

.PHONY: console
console: ## Build the page; fail without Node 20.19 or newer
	@scripts/console.sh

# Builds the page if its sources changed and Node is installed.
.PHONY: page
page: $(PAGE)

$(PAGE): $(PAGE_SOURCES)
	@scripts/console.sh try

.PHONY: setup
setup: ## Install everything that tests need besides Go (on Debian, as root)
	@scripts/setup.sh test

$(GOLANGCI):
	@echo "check: building golangci-lint once, this takes some minutes"
	@GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(TOOLS)/golangci-lint $@

$(GOFUMPT):
	@GOBIN=$(TOOLS) $(GO) install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	@mv $(TOOLS)/gofumpt $@

$(WORKFLOWCHECK):
	@GOBIN=$(TOOLS) $(GO) install go.temporal.io/sdk/contrib/tools/workflowcheck@$(WORKFLOWCHECK_VERSION)
	@mv $(TOOLS)/workflowcheck $@

$(GOTESTSUM):
	@GOBIN=$(TOOLS) $(GO) install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	@mv $(TOOLS)/gotestsum $@
