# `make` lists what there is to do. Nothing here needs a network beyond the Go
# module proxy, and only `race` needs a C compiler, only `gpu` a GPU.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# What is tested is what is shipped: no C compiler anywhere but under `race`.
export CGO_ENABLED := 0

VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
TESTFLAGS ?= -timeout 20m
RACEFLAGS ?= -timeout 60m # whole fleets, the detector in each of their processes
FUZZTIME  ?= 10s
FUZZJOBS  ?= 2
PYTHON    ?= python3
SEED      ?= 1
N         ?= 10000
GPU_FILE  ?= docs/measured/h200-esmfold/esmfold-gpu.json

.PHONY: help build test check race fuzz bench demo gpu lint sim chaos clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/fleetctl, one static-as-can-be program with every role
	go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/fleetctl ./cmd/fleetctl

test: ## vet and run every test, end-to-end ones included; no GPU, no Docker
	go vet ./...
	go test $(TESTFLAGS) ./...

check: ## what CI runs: formatting, then `test`
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "run gofmt -w on:" $$unformatted >&2; exit 1; fi
	@$(MAKE) --no-print-directory test

# Also what tests start: they start themselves again, or a program that they
# build with the detector. Such processes write their reports beside each other,
# whoever reads their output and however they end; a report fails the run. Hence
# no result comes from the cache.
race: ## every test, and each process that tests start, under the race detector; needs a C compiler
	@reports=$$(mktemp -d); trap 'rm -rf "$$reports"' EXIT; code=0; \
	CGO_ENABLED=1 GORACE="log_path=$$reports/race" go test -race -count=1 $(RACEFLAGS) ./... || code=$$?; \
	for report in "$$reports"/race.*; do [ -e "$$report" ] || continue; code=1; cat "$$report"; done; \
	exit $$code

fuzz: ## every fuzz target for FUZZTIME (10s), FUZZJOBS (2) at a time; also FUZZ=name
	@.ci/fuzz $(FUZZTIME) $(FUZZJOBS) '$(or $(FUZZ),.)'

bench: ## every benchmark, with allocations
	go test -run '^$$' -bench . -benchmem ./...

demo: build ## a whole fleet on this machine, one matrix, its boundaries; leaves only bin/ behind
	bin/fleetctl dev --submit deploy/examples/esmfold-small.yaml

gpu: build ## measure on this machine's GPU into GPU_FILE; PYTHON needs torch and transformers
	@$(PYTHON) -c 'import torch; raise SystemExit(not torch.cuda.is_available())' \
		|| { echo "make gpu: $(PYTHON) has no PyTorch that sees a GPU; nothing was measured" >&2; exit 1; }
	@mkdir -p $(dir $(GPU_FILE)); code=0; \
	bin/fleetctl dev --agent gpu --python $(PYTHON) --submit deploy/examples/esmfold-gpu.yaml --json >$(GPU_FILE).part || code=$$?; \
	if [ $$code -ne 0 ] && [ $$code -ne 3 ]; then rm -f $(GPU_FILE).part; exit $$code; fi; \
	mv $(GPU_FILE).part $(GPU_FILE); echo "measured into $(GPU_FILE)"; \
	if [ $$code -eq 3 ]; then echo "some cells failed; the file says which and why" >&2; fi

sim: ## N (10000) simulated fleet histories from SEED (1) on; also FAULTS, CELLS, AGENTS (docs/simulator.md)
	@go test -count=1 -timeout 12h -run '^TestHistories$$' -v ./internal/fleetsim \
		-args -seed $(SEED) -n $(N) -faults '$(or $(FAULTS),all)' -cells $(or $(CELLS),0) -agents $(or $(AGENTS),0)

chaos: ## 200 cells while processes are killed, paused and cut off at random, and failover times; also SEED=n
	@go test -count=1 -timeout 10m -v -run '^(TestChaos|TestFailover)$$' ./internal/devfleet \
		-args -chaos $(if $(filter-out file,$(origin SEED)),-seed $(SEED)) | grep -v '^=== '

lint: ## the house rules alone, with what they counted
	go test -v ./internal/lint

clean: ## remove what make has built
	rm -rf bin dist
