# Two commands matter: `make quick` while working, `make test` before committing.

CARGO ?= cargo
# Warnings are errors where nobody is there to read them.
DENY_WARNINGS := $(if $(CI),-D warnings,)
# The real servers that the tests of the backends run on.
SERVERS := redis cas1 cas3 dynamodb
# All crates and features at once: what is built for one step is not built again for the next.
TESTS := $(CARGO) test --workspace --all-features
# What became of each conformance case on each store.
MATRIX := $(CURDIR)/target/conformance.tsv

.DEFAULT_GOAL := help
.PHONY: help quick test bench soak tools fmt clippy deny unit all-tests doc fuzz-short schemathesis

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

quick: fmt clippy deny unit ## format, lint, dependency policy, unit and embedded tests; no servers

test: tools fmt clippy deny all-tests doc fuzz-short schemathesis ## everything, on real servers; installs what is missing

bench: ## every benchmark against its peers, with its bars
	scripts/peers
	$(CARGO) build --release -p wane-bench -p wane-server
	scripts/servers run redis cas1 dynamodb -- $(CARGO) run --release -p wane-bench -- all --check

soak: tools ## the long run: the same proofs, hours of them
	$(TESTS) --no-run
	WANE_TEST_HISTORIES=100000 WANE_TEST_DIFFERENTIAL_CASES=100000 WANE_TEST_KILLS=10000 \
	WANE_TEST_POWER_CUTS=5000 WANE_TEST_DISK_FAULTS=20000 WANE_TEST_STEP_TURNS=1000 \
	WANE_TEST_SERVER_KILLS=1000 WANE_TEST_SWEEP_SECONDS=3600 WANE_TEST_RANGE_STEPS=1000000 WANE_TEST_KEPT_ROUNDS=20000 \
	WANE_TEST_REDIS_HISTORIES=5000 WANE_TEST_DYNAMODB_HISTORIES=1000 \
	WANE_TEST_CASSANDRA_HISTORIES=1000 WANE_TEST_STEADY_SECONDS=600 WANE_TEST_SEEDS=200000 \
	WANE_TEST_FAILOVERS=1000 WANE_TEST_CAS3_FAILOVERS=100 WANE_TEST_BLOB_MIB=1024 \
	WANE_TEST_STREAM_KILLS=1000 WANE_TEST_CAS3_STREAM_KILLS=100 \
	scripts/servers run $(SERVERS) -- $(TESTS)
	scripts/fuzz 3600
	scripts/schemathesis 600
	$(CARGO) build --release -p wane-bench -p wane-server
	$(CARGO) run --release -p wane-bench -- stream --soak

tools: ## install what the other commands need
	scripts/tools

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --all-features -- $(DENY_WARNINGS)

deny:
	scripts/deny

# Whatever drives the server over real sockets takes minutes: that is for `make test`.
unit:
	$(TESTS) -- $(addprefix --skip ,blob_clients:: device_clients:: device_page:: http:: listen:: restart:: steady:: stream_clients:: disk_full::)

# Built first: a compiler beside starting servers slows both, and not all that is written compiles.
all-tests:
	$(TESTS) --no-run
	rm -f $(MATRIX)
	WANE_TEST_MATRIX=$(MATRIX) scripts/servers run $(SERVERS) -- $(TESTS) --no-fail-fast
	scripts/matrix $(MATRIX)

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --all-features

fuzz-short:
	scripts/fuzz 5

schemathesis:
	scripts/schemathesis
