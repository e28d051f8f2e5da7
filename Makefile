# Two commands do all: `make demo`, `make test`. The rest is for daily work.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

demo: ready venv ## a real Kubernetes with four fake cards: a pod that holds one, two that share one, one on a card of another host
	@$(VENV)/bin/python -m hack.demo up

demo-down: venv  ## removes all of it
	@$(VENV)/bin/python -m hack.demo down

test: venv       ## everything, unit to end-to-end on the real cluster
	@$(VENV)/bin/python -m hack.test

test-nightly: venv ## the comparisons with upstream's allocator and CEL, ten times as many cases
	@$(VENV)/bin/python -m hack.test --hypothesis-profile=nightly tests/allocation tests/cel

test-skew: ready venv ## the end-to-end tests that an older one can pass, on each pinned Kubernetes
	@$(VENV)/bin/python -m hack.skew

check: venv      ## format, lint, types, layers, generated files
	@$(VENV)/bin/python -m hack.check

fix: venv        ## what a tool can mend
	@$(VENV)/bin/ruff check -q --fix . ; $(VENV)/bin/ruff format -q .

generate: venv   ## protos and CRDs from their sources
	@$(VENV)/bin/python -m hack.generate

bench: venv      ## speed and memory against the Go reference; OPENB=DIRECTORY: also the public trace
	@$(VENV)/bin/python -m hack.bench --cluster $(if $(OPENB),--openb $(OPENB))

scale: venv      ## the controller beside a cluster of 5,000 nodes
	@$(VENV)/bin/python -m hack.scale

install-tools:   ## Debian packages that the real cluster needs (root)
	@$(PYTHON) -m hack.cluster requirements --install

ready:           # before anything is made: one line that says what is missing
	@[ -n "$$KUBECONFIG" ] || $(PYTHON) -m hack.cluster requirements

venv:
	@$(PYTHON) hack/environment.py $(VENV)

.PHONY: help demo demo-down test test-nightly test-skew check fix generate bench scale install-tools ready venv
