# `make` alone says what there is.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all build servers lint unit suites bench tools docs book deb reproduce clean

CARGO ?= cargo
DENY := target/tools/bin/cargo-deny

help:
	@echo 'make demo      get what is missing, measure a real replica, write a page'
	@echo 'make test      lint, unit tests, and every behaviour once on real servers and in a real browser'
	@echo 'make test GROUP=stale   one group of tests on real servers (LONG=1: its long ones too)'
	@echo 'make test-all  the same and what needs repetition or length'
	@echo 'make build     target/release/replimeter'
	@echo 'make servers   unpack MariaDB and MySQL into a private folder (Debian, Ubuntu)'
	@echo 'make deb       target/deb/replimeter_VERSION_ARCH.deb (Debian, Ubuntu)'
	@echo 'make docs      what the documents hold of the program: schemas and the command line'
	@echo 'make bench     the figures that this version promises, as ratios'
	@echo 'make reproduce the five published experiments beside ours, into docs/reproduced'
	@echo 'make book      the handbook of docs/ as pages in target/book (needs mdbook)'

build:
	@command -v $(CARGO) >/dev/null || { echo 'Rust is missing: install it from https://rustup.rs' >&2; exit 1; }
	@command -v cc >/dev/null || { echo 'A C compiler is missing: apt-get install gcc (or your system'"'"'s C compiler)' >&2; exit 1; }
	$(CARGO) build --release --locked

demo: build
	scripts/get-servers demo
	target/release/replimeter lag --sandbox async:1

servers:
	scripts/get-servers all

# The tools that only the tests need.
tools: servers
	scripts/get-test-tools

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' $(CARGO) doc --release --locked --workspace --no-deps --document-private-items
	[ -x $(DENY) ] || $(CARGO) install cargo-deny@0.20.2 --locked --profile dev --root target/tools
	$(DENY) --log-level error check licenses bans sources

unit:
	$(CARGO) test --release --locked --workspace --lib --bins

# Which tests on real servers run: all, or those of GROUP; with LONG the long ones too. All of the workspace is named at
# each build, since other libraries would be compiled for a part of it.
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

# `make bench DEMO=--demo` also times `make demo` from a fresh clone; `make bench
# PARTS="shapes links"` does only those (starts, shapes, links, floor, memory,
# calibrate, writes, tap, disturbance, load, loss, exposure, stale, page, compare); `PARTS="load --rounds 9 --long"`: more turns
# beside sysbench, and ten minutes for the memory.
bench: build tools
	scripts/get-test-tools bench
	$(CARGO) run --release --locked --package replimeter-bench -- $(DEMO) $(PARTS)

book:
	@mdbook=$$(command -v mdbook || echo target/tools/python/bin/mdbook); \
	[ -x "$$mdbook" ] || { echo 'mdbook is missing: cargo install mdbook (the tests put one into target/tools/python)' >&2; exit 1; }; \
	"$$mdbook" build

# What docs/ holds of the program itself; tests check that it is up to date.
docs: build
	scripts/make-docs

# The page of the published experiments; some ten minutes.
reproduce: build
	scripts/get-servers all
	scripts/make-reproduced

# Built as the release is, but with line numbers, which go into a package of their own.
deb:
	$(CARGO) build --profile packaged --locked
	scripts/make-deb target/deb packaged

clean:
	$(CARGO) clean
