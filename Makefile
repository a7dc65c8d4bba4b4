# One command each. What CI runs is .ci/run; these are the same steps by name.
FUZZTIME ?= 30s
BENCH    ?= .
SOAK     ?= 10m
CRASH_CYCLES ?= 1000
POWER_LOSSES ?= 1000
DISK_CYCLES ?= 1
SCHEDULES ?= 1000
KILLS    ?= 20
BACKUP_CYCLES ?= 200
GAMES    ?= 1000000
MODELS   ?= 1000
FROM     ?= HEAD~1
SEED     ?= 1
RUNS     ?= 20
STEPS    ?=
RELOADS  ?= 1000
PERF     ?=
VERSION  ?=
TARGETS  ?=
KINDS    ?=

.PHONY: help check test steady campaigns race fuzz bench build release tools generate upstream record crash backup powerloss simulate models game disk cluster upgrade recovery reloads soak perf page page-shots ci

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

check: ## formatting, linters, vet, go.mod, import rules, documentation
	.ci/run modules format lint vet
	go test ./tests/repo

test: ## all tests
	go test ./...

steady: ## all tests RUNS times (default 20) beside two processes that only compute; it stops at the first failure
	.ci/steady $(RUNS)

campaigns: ## the short form of every test that looks for faults by chance, as CI plays them; the targets below play one for long
	.ci/run campaigns

race: ## what has goroutines that share something, under the race detector
	.ci/run race

fuzz: ## every fuzz target for FUZZTIME each (default 30s)
	FUZZTIME=$(FUZZTIME) .ci/run fuzz

bench: ## Go benchmarks; BENCH=regexp picks some
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

build: ## bin/curfew
	.ci/run build

release: ## the files of a release in dist/: archives, Debian packages, images; VERSION=1.2.3, TARGETS="linux/amd64", KINDS="archive deb image" choose
	VERSION='$(VERSION)' TARGETS='$(TARGETS)' KINDS='$(KINDS)' .ci/package/release

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
	CRASH_CYCLES=$(CRASH_CYCLES) go test -count=1 -v -timeout 3h -run '^TestCampaignCrash' ./tests/crash

backup: ## back up a broker under load and restore it, BACKUP_CYCLES times (default 200); what was confirmed must be there
	CRASH_CYCLES=$(BACKUP_CYCLES) go test -count=1 -v -timeout 3h -run '^TestCampaignBackup' ./tests/crash

powerloss: ## cut the power of a simulated machine POWER_LOSSES times (default 1000) with each durability; what was confirmed must be there
	POWER_LOSSES=$(POWER_LOSSES) go test -count=1 -v -timeout 3h -run '^TestCampaignPowerLoss$$' ./tests/crash/power

simulate: ## play GAMES simulated clusters (default 1000000, some 120 a second) from SEED on: nodes crash and are replaced, disks fail; nothing acknowledged may be lost
	SIMULATION_SEED=$(SEED) SIMULATION_SEEDS=$(GAMES) go test -count=1 -v -timeout 24h -run '^TestCampaign(Simulation|SmallDisk|DiskFull.*)$$' ./core/wlog/quorum

models: ## play MODELS (default 1000) random runs of queues, journals, logs and stores against models of them
	SIMULATION_SEEDS=$(MODELS) go test -count=1 -timeout 24h -run '^TestCampaign' ./core/queue ./core/journal ./core/wlog/seg ./core/store ./tests/game

game: ## the one game of queues that SEED draws (default 1), and then the fewest of its steps that fail; STEPS=3,17 plays only these
	SIMULATION_SEED=$(SEED) SIMULATION_SEEDS=1 GAME_STEPS=$(STEPS) go test -count=1 -v -timeout 1h -run '^TestCampaignQueues$$' ./tests/game

disk: ## fill small disks, DISK_CYCLES times each (default 1), which needs root; emptying the queues must end it, and lose nothing
	DISK_CYCLES=$(DISK_CYCLES) go test -count=1 -v -timeout 3h -run '^TestCampaignFullDisk' ./tests/disk

reloads: ## reload a policy RELOADS times (default 1000) under load; nothing may be lost or stay in memory
	RELOADS=$(RELOADS) go test -count=1 -v -timeout 1h -run '^TestCampaignHotReloads$$' ./tests/wasm

cluster: ## SCHEDULES faults (default 1000) of the nodes of a cluster under load, and as many in network namespaces, which need root; what was confirmed must be there. And a tenth as many while clients ask all nodes, who must answer as one
	SCHEDULES=$(SCHEDULES) go test -count=1 -v -timeout 12h -run '^TestCampaignCluster' ./tests/crash
	LINEAR_ROUNDS=$$(($(SCHEDULES) / 10)) go test -count=1 -v -timeout 12h -run '^TestCampaignNodesAnswerAsOne$$' ./tests/cluster

upgrade: ## replace the nodes of a cluster of commit FROM (default HEAD~1), one after the other, under load and kills, and back; what was confirmed must be there
	.ci/upgrade '$(FROM)'

recovery: ## kill the owner of a cluster's vhost KILLS times (default 20) under the client libraries that are installed; what was confirmed must be there
	KILLS=$(KILLS) REQUIRE_TOOLS=$${REQUIRE_TOOLS:-0} go test -count=1 -v -timeout 1h -run '^TestCampaignRecovery$$' ./tests/clients

soak: ## load in rounds for SOAK (default 10m), watching the broker's memory
	.ci/soak $(SOAK)

perf: ## what messages cost, beside RabbitMQ and the machine's limit, as a table; PERF=flags (half an hour to an hour; PERF=--help)
	.ci/perf $(value PERF)

page: ## the management page in a real browser, which is installed if need be
	.ci/run page

page-shots: ## pictures of every view of the management page, in tests/page/shots/all
	SHOTS=$(CURDIR)/tests/page/shots/all .ci/run page

ci: ## everything CI runs
	.ci/run
