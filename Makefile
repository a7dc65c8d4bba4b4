# One command each. What CI runs is .ci/run; these are the same steps by name.
FUZZTIME ?= 30s
BENCH    ?= .
SOAK     ?= 10m
CRASH_CYCLES ?= 1000
POWER_LOSSES ?= 1000
DISK_CYCLES ?= 1
RELOADS  ?= 1000
PERF     ?=

.PHONY: help check test race fuzz bench build tools generate upstream record crash powerloss disk reloads soak perf ci

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

check: ## formatting, linters, vet, go.mod, import rules, documentation
	.ci/run modules format lint vet
	go test ./tests/repo

test: ## all tests
	go test ./...

race: ## all tests under the race detector
	.ci/run race

fuzz: ## every fuzz target for FUZZTIME each (default 30s)
	FUZZTIME=$(FUZZTIME) .ci/run fuzz

bench: ## Go benchmarks; BENCH=regexp picks some
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

build: ## bin/curfew
	.ci/run build

tools: ## build the pinned linter, so that the first check is fast
	go build -C .ci/tools -o /dev/null tool

generate: ## rewrite generated files
	go generate ./...

upstream: ## the test suite of RabbitMQ's Go client against this broker
	go test -count=1 -v -timeout 20m ./tests/upstream

record: ## record again what RabbitMQ's own tools print and export, for tests/management (needs Debian's rabbitmq-server)
	go test -count=1 -v -timeout 20m -run TestRecordExport ./tests/management -rewrite
	go test -count=1 -v -timeout 20m -run TestTranscripts ./tests/management -rewrite

crash: ## kill the broker CRASH_CYCLES times (default 1000) under load; what was confirmed must be there
	CRASH_CYCLES=$(CRASH_CYCLES) go test -count=1 -v -timeout 3h -run Crash ./tests/crash

powerloss: ## cut the power of a simulated machine POWER_LOSSES times (default 1000) with each durability; what was confirmed must be there
	POWER_LOSSES=$(POWER_LOSSES) go test -count=1 -v -timeout 3h -run PowerLoss ./tests/crash/power

disk: ## fill small disks, DISK_CYCLES times each (default 1), which needs root; emptying the queues must end it, and lose nothing
	DISK_CYCLES=$(DISK_CYCLES) go test -count=1 -v -timeout 3h -run TestAFullDisk ./tests/disk

reloads: ## reload a policy RELOADS times (default 1000) under load; nothing may be lost or stay in memory
	RELOADS=$(RELOADS) go test -count=1 -v -timeout 1h -run HotReloads ./tests/wasm

soak: ## load in rounds for SOAK (default 10m), watching the broker's memory
	.ci/soak $(SOAK)

perf: ## what messages cost, beside RabbitMQ and the machine's limit, as a table; PERF=flags (half an hour to an hour; PERF=--help)
	.ci/perf $(value PERF)

ci: ## everything CI runs
	.ci/run
