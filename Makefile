# Two commands matter: `make quick` while working, `make test` before committing.

CARGO ?= cargo
# Warnings are errors where nobody is there to read them.
DENY_WARNINGS := $(if $(CI),-D warnings,)

.DEFAULT_GOAL := help
.PHONY: help quick test bench soak fmt clippy deny tools unit doc fuzz-short

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

quick: fmt clippy deny unit ## format, lint, dependency policy, unit and embedded tests

test: tools quick doc fuzz-short ## everything, with real disks under it; installs what is missing
	scripts/proof

bench: ## every benchmark against its peers, with its bars
	$(CARGO) run --release -p wane-bench -- all --check

soak: tools ## the long run: the same proofs, hours of them
	scripts/proof --soak

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --all-features -- $(DENY_WARNINGS)

deny:
	scripts/deny

tools:
	scripts/tools

unit:
	$(CARGO) test --all-features

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --all-features

fuzz-short:
	scripts/fuzz 5
