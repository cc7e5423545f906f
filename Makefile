# `make` alone lists the targets.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-versions build servers lint unit suites audit fuzz bench tools docs book deb reproduce clean

CARGO ?= cargo
DENY := target/tools/bin/cargo-deny

help:
	@echo 'make demo      fetch a server if none is installed, measure a real replica, write a page'
	@echo 'make test      lint, unit tests, and every behavior once on real servers and in a real browser'
	@echo 'make test GROUP=stale   one group of tests on real servers (LONG=1: its long ones too)'
	@echo 'make test-all  the same, and the tests that need repetition or length'
	@echo 'make build     target/release/replimeter'
	@echo 'make servers   unpack MariaDB and MySQL into a private folder (Debian, Ubuntu)'
	@echo 'make deb       target/deb/replimeter_VERSION_ARCH.deb (Debian, Ubuntu)'
	@echo 'make docs      update the generated documents: schemas, command line, keys, columns, messages'
	@echo 'make audit     look for published vulnerabilities of the dependencies (fetches the database of RustSec)'
	@echo 'make fuzz      feed mutated inputs to all that reads bytes of others (RUNS=10000000 of each)'
	@echo 'make bench     measure the performance goals, as ratios to the alternatives'
	@echo 'make reproduce run the five published experiments, compare with the published results, into docs/reproduced'
	@echo 'make book      build the handbook from docs/ into target/book (needs mdbook)'

build:
	@command -v $(CARGO) >/dev/null || { echo 'Rust is missing: install it from https://rustup.rs' >&2; exit 1; }
	@command -v cc >/dev/null || { echo 'A C compiler is missing: apt-get install gcc (or your system'"'"'s C compiler)' >&2; exit 1; }
	$(CARGO) build --release --locked

demo: build
	scripts/get-servers demo
	target/release/replimeter lag --sandbox async:1

servers:
	scripts/get-servers all

# Tools that only the tests need.
tools: servers
	scripts/get-test-tools

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' $(CARGO) doc --release --locked --workspace --no-deps --document-private-items
	$(MAKE) $(DENY)
	$(DENY) --log-level error check licenses bans sources

$(DENY):
	$(CARGO) install cargo-deny@0.20.2 --locked --profile dev --root target/tools

audit: $(DENY)
	scripts/audit $(DENY)

# Every target of fuzz/targets, with at most 64 MB and one second for an input. Inputs that reach new code are kept in target/corpus;
# one that fails is written there, too: it becomes a unit test. `TARGETS=url` selects targets.
RUNS ?= 10000000
TARGETS ?= binlog wire option-file url plan workload
FUZZ := target/tools/bin/cargo-fuzz

fuzz: $(FUZZ)
	for target in $(TARGETS); do \
		mkdir -p target/corpus/$$target; \
		$(FUZZ) run --sanitizer none --target-dir target/fuzz $$target target/corpus/$$target fuzz/seeds/$$target -- \
			-runs=$(RUNS) -timeout=1 -max_len=4096 -print_final_stats=1 -artifact_prefix=target/corpus/$$target- || exit; \
	done

$(FUZZ):
	$(CARGO) install cargo-fuzz@0.13.2 --locked --profile dev --root target/tools

unit:
	$(CARGO) test --release --locked --workspace --lib --bins

# Selects tests on real servers: all, or those of GROUP; with LONG the long ones too. Every build names the whole workspace,
# since cargo compiles the libraries again with other features for a part of it.
SELECTED := $(if $(GROUP),$(GROUP)::) $(if $(LONG),--include-ignored)

suites: build tools
	$(CARGO) test --release --locked --workspace --test suites --no-run
	scripts/run-suites $(CARGO) test --release --locked --workspace --test suites -- $(SELECTED)

ifdef GROUP
test: suites
else
test: lint unit suites
endif

test-all:
	$(MAKE) test LONG=1
	$(MAKE) test-versions

# Tests on other series of the servers than those of `make test`. State transfer of MariaDB 11.8 needs the scripts of an installed one.
test-versions:
	for series in mariadb-11.8 mysql-8.0 mysql-8.4; do scripts/get-servers $$series || exit; done
	REPLIMETER_TEST_SERVERS='mariadb-11.8 mysql-8.4' $(MAKE) suites
	$(MAKE) suites GROUP=versions LONG=1

# `make bench DEMO=--demo` also times `make demo` from a fresh clone. `make bench PARTS="shapes links"` runs only these parts
# (starts, shapes, links, floor, memory, calibrate, reference, writes, tap, disturbance, hosts, load, loss, exposure, stale, front, page, compare).
# `PARTS="load --rounds 9 --long"` sets the number of rounds against sysbench, and observes the memory for ten minutes.
bench: build tools
	scripts/get-test-tools bench
	$(CARGO) run --release --locked --package replimeter-bench -- $(DEMO) $(PARTS)

book:
	@mdbook=$$(command -v mdbook || echo target/tools/python/bin/mdbook); \
	[ -x "$$mdbook" ] || { echo 'mdbook is missing: cargo install mdbook (the tests put one into target/tools/python)' >&2; exit 1; }; \
	"$$mdbook" build

# Updates the documents that are generated from the program; tests check that they are up to date.
docs: build
	scripts/make-docs

# Runs the published experiments and writes their page; takes a quarter of an hour.
reproduce: build
	scripts/get-servers all
	scripts/make-reproduced

# Builds like the release, but with line numbers, which go into a separate package.
deb:
	$(CARGO) build --profile packaged --locked
	scripts/make-deb target/deb packaged

clean:
	$(CARGO) clean
