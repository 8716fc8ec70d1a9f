# `make demo` and `make test` do their own set-up. The rest are short-cuts.

PREFIX ?= /usr/local
# Not abspath, which splits a path at its spaces.
BUILT := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(if $(filter /%,$(firstword $(BUILT))),,$(CURDIR)/)$(BUILT)/release
CARGO := scripts/with-rust cargo
# The lab may have to `cargo install` a guest scheduler.
UNSPIN := scripts/with-rust "$(RELEASE)/unspin"
DIST := target/dist
EXPERIMENTS := $(filter-out demo,$(basename $(notdir $(wildcard experiments/*.toml))))

# Root may have no Rust, and what it builds would be root's in the checkout.
define need_build
@test -x "$(RELEASE)/unspin" || { echo "run 'make build' first, not as root" >&2; exit 1; }
endef

define need_absolute
@for path in "$(PREFIX)" "$(or $(DESTDIR),/)"; do case "$$path" in /*) ;; \
	*) echo "PREFIX and DESTDIR must begin with /, unlike $$path" >&2; exit 1 ;; esac; done
endef

.DEFAULT_GOAL := help
.PHONY: help setup build programs demo test test-all python-test igvm-measure igvm-others sev-es es-emu vmm pages iops xen stacks stress experiment $(EXPERIMENTS) trace-speed vt-speed vt-deterministic vt-faults fuzz vt-nested \
        host-model cost-here steal-here dist install uninstall install-test source-test prometheus-test clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  make NAME         one of $(EXPERIMENTS)"

setup: ## install what is missing, and say what and why
	@scripts/setup.sh

build: setup ## set up, then the release build
	$(CARGO) build --release --locked --workspace

# What the lab and its guests run: all but unspin-vmm.
programs: setup
	$(CARGO) build --release --locked --workspace --exclude unspin-vmm

demo: programs ## set up, build, then the demo into out/demo: same bytes as in results/demo?
	$(UNSPIN) lab qemu build
	$(UNSPIN) lab run demo --out out/demo --verify results/demo $(ARGS)

# Clippy compiles the tests, as `cargo clippy` has it compile what it checks: one build, not two.
# Each release of Rust has other lints: only CI fails for them, with the release that it uses.
test: programs ## set up, build, then everything that CI checks; the tests boot guests
	$(CARGO) fmt --all --check
	$(UNSPIN) lab kernel fetch debian-cloud
	$(UNSPIN) lab kernel fetch debian-cloud:trixie
	$(UNSPIN) lab qemu build
	RUSTC_WORKSPACE_WRAPPER=clippy-driver \
	UNSPIN_UNDER_TEST="$(RELEASE)/unspin" $(CARGO) test --locked --workspace --no-fail-fast

test-all: build ## `make test` with what takes minutes: suspend, stops, nested guests, older kernels
	$(UNSPIN) lab kernel build
	$(UNSPIN) lab kernel fetch debian-cloud:bookworm
	UNSPIN_TEST_ALL=1 $(MAKE) test
	UNSPIN_PROGRAM="$(RELEASE)/unspin" scripts/python-test.sh

python-test: ## python/: ruff and pytest, in a virtual environment of its own
	scripts/python-test.sh $(ARGS)

igvm-measure: build ## the digests of 1,000 random IGVM files and of published vectors, beside sev-snp-measure's; into out/igvm.json
	@mkdir -p out
	scripts/igvm-measure.py "$(RELEASE)/unspin" out/igvm.json

igvm-others: build ## IGVM files of another implementation: read, and loaded or refused with a reason; into out/igvm-others.json
	$(UNSPIN) lab kernel fetch debian-cloud
	@mkdir -p out
	scripts/igvm-others.py "$(RELEASE)/unspin-vmm" "$(RELEASE)/unspin" out/igvm-others.json

sev-es: build ## a stock kernel as an emulated SEV-ES guest, and where it must fail; into out/sev-es.json, out/vnae.json
	$(UNSPIN) lab kernel fetch debian-cloud
	$(UNSPIN) lab qemu build
	@mkdir -p out
	scripts/sev-es.py "$(RELEASE)/unspin" out/sev-es.json $(ARGS)
	scripts/vnae.py "$(RELEASE)/unspin" out/vnae.json

es-emu: build ## guests of a real KVM that emulates SEV-ES, in an emulated machine; into out/es-emu.json
	$(UNSPIN) lab kernel fetch debian-cloud
	$(UNSPIN) lab kernel build --source lab-cvm
	$(UNSPIN) lab kernel build --source lab-es
	$(UNSPIN) lab qemu build
	@mkdir -p out
	scripts/es-emu.py "$(RELEASE)/unspin-vmm" "$(RELEASE)/unspin" out/es-emu.json $(ARGS)

vmm: build ## unspin-vmm on a real KVM in an emulated machine: stock guests, devices, IGVM files; into out/vmm.json
	$(UNSPIN) lab kernel fetch debian-cloud
	@mkdir -p out
	$(UNSPIN) lab qemu build
	scripts/vmm.py "$(RELEASE)/unspin-vmm" "$(RELEASE)/unspin" out/vmm.json $(ARGS)

pages: build ## what keeps devices of unspin-vmm from the guest's pages, and what that costs
	$(UNSPIN) lab kernel fetch debian-cloud
	$(UNSPIN) lab kernel build --source lab-es
	$(UNSPIN) lab qemu build
	$(CARGO) build --release --locked -p unspin-vmm --examples
	@mkdir -p out
	scripts/pages.py "$(RELEASE)" --claims out/pages.json $(ARGS)

iops: build ## requests a second of unspin-vmm's guests, by page access and by who reads the GHCB; into out/iops.json
	$(UNSPIN) lab kernel fetch debian-cloud
	$(UNSPIN) lab kernel build --source lab-es
	$(UNSPIN) lab qemu build
	$(CARGO) build --release --locked -p unspin-vmm --examples
	@mkdir -p out
	scripts/iops.py "$(RELEASE)" --claims out/iops.json $(ARGS)

xen: ## fetch and build Xen, for one of the stacks of `make stacks`; into the cache
	scripts/xen.sh

stacks: build ## the same guest under QEMU, unspin-vmm and Xen, plain and SEV-ES, in virtual time; into out/stacks.json
	$(UNSPIN) lab kernel fetch debian-cloud
	$(UNSPIN) lab qemu build
	@mkdir -p out
	scripts/stacks.py "$(RELEASE)" --claims out/stacks.json $(ARGS)

stress: build ## MINUTES=30 SEED=...: random stressors under `unspin run`, into out/stress-SEED
	scripts/stress.sh "$(RELEASE)/unspin" $(or $(MINUTES),30) $(SEED)

experiment: build ## NAME=... ARGS=...: an experiment into out/NAME; can be interrupted, resumes
	$(UNSPIN) lab run $(NAME) --out out/$(NAME) $(ARGS)

trace-speed: build ## how fast `unspin trace` reads, into out/trace-speed.json
	@mkdir -p out
	scripts/trace-speed.sh "$(RELEASE)/unspin" > out/trace-speed.json
	$(UNSPIN) claims list --file out/trace-speed.json

vt-speed: build ## how fast virtual time runs on this machine, into out/vt-speed.json
	@mkdir -p out
	$(UNSPIN) lab qemu build
	scripts/vt-speed.py "$(RELEASE)/unspin" > out/vt-speed.json
	$(UNSPIN) claims list --file out/vt-speed.json

host-model: ## the simulated host beside this machine's scheduler (root, `make build`)
	$(need_build)
	@mkdir -p out
	"$(RELEASE)/unspin" lab qemu build
	scripts/host-model.py "$(RELEASE)/unspin" > out/host-model.json
	"$(RELEASE)/unspin" claims list --file out/host-model.json

vt-deterministic: build ## the same bytes from a second checkout? into out/vt-deterministic.json
	@mkdir -p out
	$(UNSPIN) lab qemu build
	scripts/vt-deterministic.sh "$(RELEASE)/unspin" out/vt-deterministic > out/vt-deterministic.json
	$(UNSPIN) claims list --file out/vt-deterministic.json

vt-faults: build ## does the lab notice faults of its simulated host? into out/vt-faults.json
	@mkdir -p out
	scripts/vt-faults.py "$(RELEASE)/unspin" out/vt-faults > out/vt-faults.json
	$(UNSPIN) claims list --file out/vt-faults.json

fuzz: build ## random steps in virtual time: 500 seeds an actuator, and planted bugs; into out/fuzz.json (hours)
	@mkdir -p out
	$(UNSPIN) lab qemu build
	scripts/fuzz.py "$(RELEASE)/unspin" out/fuzz-steps $(ARGS) > out/fuzz.json
	$(UNSPIN) claims list --file out/fuzz.json

vt-nested: build ## a real KVM in virtual time: what its guest loses, with and without help
	$(UNSPIN) lab kernel fetch debian-cloud
	$(UNSPIN) lab qemu build
	scripts/vt-nested.py "$(RELEASE)/unspin" $(ARGS)

cost-here: ## what watch and record cost here, into out/cost-here.json (root, `make build`)
	$(need_build)
	@mkdir -p out
	scripts/cost-here.sh "$(RELEASE)/unspin" > out/cost-here.json
	"$(RELEASE)/unspin" claims list --file out/cost-here.json

steal-here: ## what record finds beside steal time, into out/steal-here.json (root, `make build`)
	$(need_build)
	@mkdir -p out
	scripts/steal-here.py "$(RELEASE)/unspin" > out/steal-here.json
	"$(RELEASE)/unspin" claims list --file out/steal-here.json

$(EXPERIMENTS):
	@$(MAKE) --no-print-directory experiment NAME=$@

install: ## what `make build` built, man pages, completions and systemd units, below PREFIX
	$(need_build)
	$(need_absolute)
	scripts/install.sh "$(RELEASE)" "$(PREFIX)" "$(DESTDIR)"

uninstall: ## removes what `make install` installed below PREFIX, and stops the services
	$(need_absolute)
	scripts/uninstall.sh "$(PREFIX)" "$(DESTDIR)"

dist: setup ## static programs, tarball and Debian package, into target/dist
	scripts/dist.sh

install-test: dist ## the package in clean roots, its services; into out/install-test.json (root)
	@mkdir -p out
	scripts/install-test.sh > out/install-test.json
	$(DIST)/root/usr/bin/unspin claims list --file out/install-test.json
	scripts/service-test.sh || [ $$? -eq 77 ]

source-test: ## `make demo` and `make test` from source, in a clean root of Debian 13 (root, half an hour)
	scripts/source-test.sh $(ARGS)

prometheus-test: ## alert rules, and Prometheus against `unspin watch --listen` (root, `make build`)
	scripts/prometheus-test.sh "$(RELEASE)/unspin"

clean: ## remove what was built; results in out/ and cached kernels stay
	$(CARGO) clean
