# `make` alone lists the targets.
.DEFAULT_GOAL := help
.PHONY: help demo test check compile test-all test-versions test-monitoring test-dist build servers unit suites audit fuzz bench tools docs book deb dist reproduce clean

CARGO ?= cargo
DENY := target/tools/bin/cargo-deny

help:
	@echo 'make demo      measure a real replica and write a page; builds the program and fetches a server first, if necessary'
	@echo 'make test      unit tests, and every behavior once on real servers and in a real browser'
	@echo 'make test GROUP=stale TEST=name   one group of tests on real servers, or one test (LONG=1: long ones too)'
	@echo 'make check     format, lints, documentation, licenses, generated documents'
	@echo 'make test-all  both, tests that need repetition or length, other server versions, and what make dist makes'
	@echo 'make build     target/release/replimeter'
	@echo 'make servers   unpack MariaDB and MySQL into a private folder (Debian, Ubuntu)'
	@echo 'make dist      target/dist/replimeter-VERSION-ARCH-linux.tar.gz, for Debian 11, Ubuntu 20.04 and newer'
	@echo 'make deb       target/deb/replimeter_VERSION_ARCH.deb (Debian, Ubuntu)'
	@echo 'make docs      update the generated documents: schemas, command line, keys, columns'
	@echo 'make audit     look for published vulnerabilities of the dependencies (fetches the database of RustSec)'
	@echo 'make fuzz      feed mutated inputs to all that reads bytes of others (RUNS=10000000 of each)'
	@echo 'make bench     measure the performance goals, as ratios to the alternatives'
	@echo 'make reproduce run the five published experiments, compare with the published results, into docs/reproduced'
	@echo 'make book      build the handbook from docs/ into target/book (needs mdbook)'

build:
	@command -v $(CARGO) >/dev/null || { echo 'Rust is missing: install it from https://rustup.rs' >&2; exit 1; }
	@command -v cc >/dev/null || { echo 'A C compiler is missing: apt-get install gcc (or your system'"'"'s C compiler)' >&2; exit 1; }
	$(CARGO) build --release --locked

demo:
	@scripts/demo

servers:
	scripts/get-servers all

# Servers and tools that the tests need.
tools:
	scripts/get-servers tests
	scripts/get-test-tools

# No profile but that of the release, whose libraries clippy and rustdoc then read once.
check: build $(DENY)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' $(CARGO) doc --release --locked --workspace --no-deps --document-private-items
	$(DENY) --log-level error check licenses bans sources
	scripts/make-docs --check

$(DENY):
	$(CARGO) install cargo-deny@0.20.2 --locked --profile dev --root target/tools

audit: $(DENY)
	scripts/audit $(DENY)

# Every target of fuzz/targets, with at most 64 MB and one second for an input. Inputs that reach new code are kept in target/corpus;
# one that fails is written there, too: it becomes a unit test. `TARGETS=url` selects targets.
RUNS ?= 10000000
TARGETS ?= binlog wire login option-file url url-list plan workload journal run-directory http
FUZZ := target/tools/bin/cargo-fuzz

fuzz: $(FUZZ)
	for target in $(TARGETS); do \
		mkdir -p target/corpus/$$target; \
		$(FUZZ) run --sanitizer none --target-dir target/fuzz $$target target/corpus/$$target fuzz/seeds/$$target -- \
			-runs=$(RUNS) -timeout=1 -max_len=4096 -print_final_stats=1 -artifact_prefix=target/corpus/$$target- || exit; \
	done

$(FUZZ):
	$(CARGO) install cargo-fuzz@0.13.2 --locked --profile dev --root target/tools

# The programs, unit tests and suites are one build, of the whole workspace: for a part of it cargo compiles libraries again with other features.
compile: build
	$(CARGO) test --release --locked --workspace --lib --bins --test suites --no-run

unit:
	$(CARGO) test --release --locked --workspace --lib --bins --no-fail-fast

# Selects tests on real servers: all, those of GROUP, or one; with LONG the long ones too.
SELECTED := $(if $(GROUP),$(GROUP)::$(TEST),$(TEST)) $(if $(LONG),--include-ignored)

suites: build tools
	scripts/run-suites $(CARGO) test --release --locked --workspace --test suites -- $(SELECTED)

ifneq ($(GROUP)$(TEST),)
test: suites
else
# Fetches the servers while it compiles, and runs unit tests beside those on servers, which mostly wait.
test:
	$(MAKE) --jobs=2 compile tools
	$(MAKE) --jobs=2 unit suites
endif

test-all: check
	$(MAKE) test LONG=1
	$(MAKE) test-versions
	$(MAKE) test-monitoring
	$(MAKE) test-dist

# Tests on other series of the servers than those of `make test`. State transfer of MariaDB 11.8 needs the scripts of an installed one.
test-versions:
	for series in mariadb-11.8 mysql-8.0 mysql-8.4; do scripts/get-servers $$series || exit; done
	REPLIMETER_TEST_SERVERS='mariadb-11.8 mysql-8.4' $(MAKE) suites
	$(MAKE) suites GROUP=versions LONG=1

# Prometheus and gh-ost with `watch`.
test-monitoring: build tools
	scripts/test-monitoring

# `make bench DEMO=--demo` also times `make demo` from a fresh clone. `make bench PARTS="shapes links"` runs only these parts
# (starts, shapes, links, floor, memory, calibrate, reference, writes, tap, disturbance, hosts, load, loss, exposure, stale, front, page, compare).
# `PARTS="load --rounds 9 --long"` sets the number of rounds against sysbench, and observes the memory for ten minutes.
bench: build servers
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

# Programs for other systems, linked with an old C library.
dist:
	CARGO='$(CARGO)' scripts/make-dist

# The archive on older releases of Debian, and the steps of Containerfile.
test-dist: dist
	scripts/test-dist

clean:
	$(CARGO) clean
