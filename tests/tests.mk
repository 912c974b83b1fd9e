# Targets around the code: demo, tests, fuzzers, lint, bench.
#
# A unit test is tests/unit/FOLDER/test_NAME.c (FOLDER: where the tested code lives), a Check program with its own main(). It is linked to libcommon (whole, so that
# modules can be opened) and to the parts it uses. The parts are read from the file itself:
#   - its includes: "launcher/..." takes the launcher's archive, "collectives/shm/..." that of shm, and so on;
#   - a comment that holds `needs:` and part names, programs of ours that it executes, or further .c files:
#         /* needs: ssh hvdagent tests/unit/fake_peer.c */
# Parts are archives without their main.o, so the linker takes only what a test really calls. Parts: launcher ssh agent ctl
# auth tls yaml shm algo device client engine. A fuzz target, tests/fuzz/fuzz_NAME.c, works in the same way.

CHECK_LIBS = $(call pkg_libs,check)
SSH_LIBS   = $(call pkg_libs,libssh2) $(call pkg_libs,libcrypto)

PARTS := launcher ssh agent ctl auth tls yaml shm algo device client engine
part_launcher := $(filter-out launcher/main.c,$(LAUNCHER_SRC))
part_ssh      := $(SSH_SRC)
part_agent    := $(filter-out agent/main.c,$(AGENT_SRC))
part_ctl      := $(filter-out agent/ctl/main.c,$(CTL_SRC))
part_auth     := $(AUTH_SRC)
part_tls      := $(TLS_SRC)
part_yaml     := $(YAML_SRC)
part_shm      := $(SHM_SRC)
part_algo     := $(ALGO_SRC)
part_device   := $(DEVICE_SRC)
more_device   := $(BUILD)/obj/gen/pack_image.o
part_client   := $(CLIENT_SRC)
part_engine   := $(filter-out collectives/engine/main.c,$(ENGINE_SRC))

define part_rule
$(BUILD)/parts/lib$(1).a: $(call obj,$(part_$(1))) $(more_$(1))
	@mkdir -p $$(@D); rm -f $$@
	@$(AR) qcs $$@ $$^
endef
$(foreach p,$(PARTS),$(eval $(call part_rule,$(p))))

# The words a test asks for, by its includes and its needs: comment.
words_of = $(shell sed -n \
  -e 's,^\#include "launcher/transport/ssh/.*,ssh launcher,p' -e 's,^\#include "launcher/.*,launcher,p' \
  -e 's,^\#include "agent/ctl/.*,ctl,p' -e 's,^\#include "agent/.*,agent,p' -e 's,^\#include "common/modules/yaml.*,yaml,p' \
  -e 's,^\#include "collectives/\(shm\|local\)/.*,shm,p' -e 's,^\#include "collectives/\(kernels\|algorithms\)/.*,algo,p' \
  -e 's,^\#include "collectives/gpu/.*,device,p' -e 's,^\#include "collectives/client/.*,client,p' -e 's,^\#include "\(collectives/\)*hvd\.h".*,client,p' \
  -e 's,^\#include "collectives/engine/.*,engine,p' -e 's,^\#include "collectives/backends/.*,engine,p' \
  -e 's,^.*[ *]needs: *\([^*]*\).*,\1,p' $(1))
parts_of    = $(call with_below,$(sort $(filter $(PARTS),$(1))))
with_below  = $(sort $(1) $(if $(filter client engine,$(1)),shm algo) $(if $(filter client engine,$(1)),device) $(if $(filter device,$(1)),algo))
archives_of = $(foreach p,$(call parts_of,$(1)),$(BUILD)/parts/lib$(p).a)
programs_of = $(if $(filter hvdrun,$(1)),$(BUILD)/hvdrun) $(if $(filter hvdagent,$(1)),$(BUILD)/hvdagent) \
              $(if $(filter hvd-engine,$(1)),$(BUILD)/modules/hvd-engine) $(if $(filter hvd-pmix,$(1)),$(PMIX_SERVER)) $(if $(filter modules,$(1)),$(MODULES)) \
              $(if $(filter examples,$(1)),$(EXAMPLES))
test_needs  = $(call archives_of,$(1)) $(call obj,$(filter %.c,$(1)))
test_links  = -Wl,--start-group $(filter $(BUILD)/parts/%,$(1)) -Wl,--end-group \
              -Wl,--whole-archive $(BUILD)/libcommon.a -Wl,--no-whole-archive \
              $(if $(filter %/libssh.a,$(1)),$(SSH_LIBS)) $(if $(filter %/libauth.a,$(1)),$(call pkg_libs,libcrypto)) \
              $(if $(filter %/libtls.a,$(1)),$(call pkg_libs,libssl) $(call pkg_libs,libcrypto)) $(if $(filter %/libyaml.a,$(1)),$(call pkg_libs,yaml-0.1)) $(UV_LIBS) $(PROTO_LIBS)

UNIT_SRC := $(sort $(shell find tests/unit -name 'test_*.c'))
UNIT     := $(addprefix $(BUILD)/tests/,$(basename $(notdir $(UNIT_SRC))))
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ     := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/%,$(FUZZ_SRC))

.SECONDEXPANSION:
unit_of = $(filter %/$(1).c,$(UNIT_SRC))
$(BUILD)/tests/test_%: $$(call obj,$$(call unit_of,test_$$*)) $(BUILD)/obj/tests/unit/run_test.o $(BUILD)/libcommon.a \
        $$(call test_needs,$$(call words_of,$$(call unit_of,test_$$*))) | $$(call programs_of,$$(call words_of,$$(call unit_of,test_$$*)))
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -Wl,-E,--wrap=_tcase_add_test -o $@ $(filter %.o,$^) $(call test_links,$^) $(CHECK_LIBS) -lm -lpthread
$(BUILD)/tests/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/libcommon.a $$(call test_needs,$$(call words_of,tests/fuzz/fuzz_$$*.c))
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -fsanitize=fuzzer -Wl,-E -o $@ $(filter %.o,$^) $(call test_links,$^) -lm -lpthread

# Its engines have the simulation's links instead of those in libcommon, what they map has guard pages, and ranks may give overlapping memory.
$(BUILD)/tests/fuzz_descriptor: private LDFLAGS_ALL += -Wl,-z,muldefs $(patsubst %,-Wl$(comma)--wrap=%,mmap munmap __asan_memcpy)

# It fails the allocations of the parts that it is linked to.
$(BUILD)/tests/test_countdown: private LDFLAGS_ALL += $(patsubst %,-Wl$(comma)--wrap=%,malloc calloc realloc reallocarray strdup strndup free)

# Its symbols are exported so that its self-test has a file with names that no library of ours may show.
$(BUILD)/tests/structure: $(call obj,$(wildcard tests/structure/*.c))
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -Wl,-E -o $@ $^

# Every test runs below it.
$(CONTAIN): $(BUILD)/obj/tests/contain.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $<

$(BUILD)/tests/test_session_deaths: | $(BUILD)/tests/slow-exec.so
$(BUILD)/tests/slow-exec.so: $(BUILD)/obj/tests/unit/slow_exec.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -o $@ $< -ldl

# The fault matrix: its worker, and what holds an agent while it spawns.
FAULTS := $(BUILD)/tests/fault-worker $(BUILD)/tests/fault-pty $(BUILD)/tests/fault-hold.so
$(BUILD)/tests/fault-worker: $(BUILD)/obj/tests/faults/worker.o $(BUILD)/obj/tests/faults/elastic.o $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..'
$(BUILD)/tests/fault-pty: $(BUILD)/obj/tests/faults/pty.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< -lutil
$(BUILD)/tests/fault-hold.so: $(BUILD)/obj/tests/faults/hold.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -o $@ $< -ldl

# Fault countdowns: what is preloaded, what runs the jobs, and the programs with a clone3 that can be made to fail (it goes through
# libc, as under a sanitizer).
COUNTDOWN := $(BUILD)/tests/countdown.so $(BUILD)/tests/countdown-run $(BUILD)/tests/countdown/hvdrun $(BUILD)/tests/countdown/hvdagent
$(BUILD)/tests/countdown.so: $(BUILD)/obj/tests/faults/countdown.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -o $@ $< -ldl
$(BUILD)/tests/countdown-run: $(BUILD)/obj/tests/faults/countdown_run.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $<
$(BUILD)/obj/tests/countdown/spawn.o: common/process/spawn.c Makefile
	@mkdir -p $(@D)
	$(call note,CC  )
	$(Q)$(CC) $(CFLAGS_ALL) -DSPAWN_COPIES_MEMORY -MMD -MP -c -o $@ $<
$(BUILD)/tests/countdown/hvdrun: $(call obj,$(LAUNCHER_SRC))
$(BUILD)/tests/countdown/hvdagent: $(call obj,$(AGENT_SRC))
$(BUILD)/tests/countdown/%: $(BUILD)/obj/tests/countdown/spawn.o $(filter-out %/common/process/spawn.o,$(COMMON_OBJ)) | all
	@mkdir -p $(@D) && ln -sfn ../../modules $(@D)/modules
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -Wl,-E -o $@ $(filter %.o,$^) $(UV_LIBS) $(PROTO_LIBS)

# What the end-to-end tests of output write, read and measure with.
E2E_WORKERS := $(addprefix $(BUILD)/tests/,mourner trainee quitter laggard culprit crowd kinds placed sets uneven fused extremes steps large sentences) # linked to libhvd
E2E_GPU_WORKERS := $(patsubst tests/e2e/%.c,$(BUILD)/tests/%,$(wildcard tests/e2e/gpu_*.c)) # and with tensors on a GPU
E2E_TOOLS := $(BUILD)/tests/scribe $(BUILD)/tests/overhear $(BUILD)/tests/clock-jumps.so $(BUILD)/tests/fault-hold.so $(E2E_WORKERS) $(E2E_GPU_WORKERS)
# Clients of the rendezvous, with the protocols of other people's libraries.
E2E_TOOLS += $(BUILD)/tests/nvml/libnvidia-ml.so.1
$(BUILD)/tests/nvml/libnvidia-ml.so.1: $(BUILD)/obj/tests/e2e/nvml_double.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $^
$(BUILD)/tests/test_gpu_scan: | $(BUILD)/tests/nvml/libnvidia-ml.so.1
E2E_TOOLS += $(BUILD)/tests/gloo-client $(BUILD)/tests/gloo-bad
$(BUILD)/tests/gloo-%: $(BUILD)/obj/tests/rendezvous/gloo_%.o $(addprefix $(BUILD)/obj/common/,net/net.o base/err.o)
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^
$(BUILD)/tests/clock-jumps.so: $(BUILD)/obj/tests/safe/clock_jumps.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -o $@ $<
$(BUILD)/tests/scribe $(BUILD)/tests/overhear: $(BUILD)/tests/%: $(BUILD)/obj/tests/e2e/%.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $<
$(E2E_WORKERS): $(BUILD)/tests/%: $(BUILD)/obj/tests/e2e/%.o $(BUILD)/obj/tests/e2e/worker.o $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..'
$(E2E_GPU_WORKERS): $(BUILD)/tests/%: $(BUILD)/obj/tests/e2e/%.o $(addprefix $(BUILD)/obj/tests/e2e/,worker.o gpu.o) \
    $(addprefix $(BUILD)/obj/,collectives/gpu/driver.o collectives/gpu/library.o common/base/err.o) $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..'

include tests/sim/sim.mk
include tests/gpu/gpu.mk
E2E_TOOLS += $(GPU_TOOLS)

# ---- what people type ------------------------------------------------------------------------------------------------
demo: ## installs what is missing, builds, trains a language model on 4 local workers
	$(provide) build options
	@$(MAKE) $(quietly) demo-run
check: ## installs what is missing, builds, runs the tests that a fresh machine can run in minutes
	$(provide) build options test $(if $(CI),root)
	@$(MAKE) $(quietly) check-run
check-all: ## every test: the slow ones, sanitizers, fuzzers, lint, check-fresh
	$(provide) build options test extra frameworks wheel deb rpm release cross fresh
	@$(MAKE) $(quietly) check-all-run
check-asan: ## unit and end-to-end tests under AddressSanitizer and UBSan
	$(provide) build options test
	@$(MAKE) $(quietly) asan-run
check-tsan: ## unit tests under ThreadSanitizer
	$(provide) build options test
	@$(MAKE) $(quietly) tsan-run
check-faults: ## the fault matrix: every fault in every phase of a job, on namespaced hosts (root); CELL=word for some
	$(provide) build options test
	@$(MAKE) $(quietly) faults-run
check-fresh: ## README's first commands in new roots of Debian 12 and 13, as machines and as containers (root); KIND=word for some
	$(provide) build options fresh
	@$(MAKE) $(quietly) fresh-run
check-wheel: ## the wheels of make wheel: venvs, a bare root of Debian, stock Horovod beside them; CASE=word for some
	$(provide) build options test wheel
	@$(MAKE) $(quietly) wheel-run
check-gpu-bundle: ## the bundle of make gpu-bundle, on doubles in a bare root of Debian without network (root, mmdebstrap)
	$(provide) build options test fresh
	@$(MAKE) $(quietly) gpu-bundle-run
check-countdown: ## fault countdowns: every memory, read, write, fork and descriptor fails once; SERIES="word ..." for some
	$(provide) build options test
	@$(MAKE) $(quietly) countdown-run
soak: ## 500 jobs in a row leave the machine as it was; SOAK_JOBS and SOAK_SECONDS for more or fewer
	$(provide) build options test
	@$(MAKE) $(quietly) soak-run
check-compatible: ## options, exit statuses, reports, variables and libhvd's ABI are those of an older commit; BASE=COMMIT for another
	$(provide) build options test
	@$(MAKE) $(quietly) compatible-run
check-cross: ## another machine: built with a cross compiler (aarch64), its unit tests and a training run under an emulator; root, mmdebstrap
	$(provide) build options cross
	@tests/build.sh $(MAKE) $(quietly) all $(CONTAIN)
	@$(TESTED_BY) tests/run.sh cross
check-versions: ## programs of the releases of the window, and of a fabricated later one, beside those of this tree: docs/upgrading.md
	$(provide) build options
	@$(MAKE) $(quietly) $(CONTAIN)
	@$(TESTED_BY) tests/run.sh versions
fuzz: ## runs each fuzz target for FUZZ_SECONDS (10); needs clang
	$(provide) build options test extra
	@$(MAKE) $(quietly) fuzz-run
lint: ## structure, formatting, static analysis, shell scripts, man pages
	$(provide) build options extra
	@$(MAKE) $(quietly) lint-run
bench: all ## the figures beside the peers' (hydra, OpenMPI) in one run; QUICK=1: in two minutes
	tests/bench/run.sh $(BUILD)

DEMO_STEPS ?= 40
demo-run: all
	$(BUILD)/hvdrun -np 4 $(BUILD)/examples/train --steps $(DEMO_STEPS)

# X-parts is what X-run wants; a recipe that is all of one program is that program, so that a signal to make finds it.
TESTED_BY = exec env BUILD=$(BUILD)
unit: ## builds and runs the unit tests alone (TESTS="test_x test_y" for some)
	@tests/build.sh $(MAKE) $(quietly) unit-parts
	@$(TESTED_BY) tests/run.sh unit
unit-parts: $(UNIT) $(CONTAIN)

check-run:
	@tests/build.sh $(MAKE) $(quietly) test-programs
	@$(TESTED_BY) tests/run.sh unit+python$(if $(CI),$(,)fresh-clang) e2e:hosts,sim,structure+e2e:local countdown e2e:alone faults-quick
check-all-run:
	@tests/build.sh $(MAKE) $(quietly) test-programs gpu-bundle wheel
	@contrib/debian/make.sh $(BUILD) $(VERSION) > /dev/null
	@contrib/rpm/make.sh $(BUILD) $(VERSION) > /dev/null
	@$(TESTED_BY) SEEDS=1..20000 NAMES=1000000 tests/run.sh unit e2e-all:hosts,sim,structure+e2e-all:local,python-all e2e-all:alone fresh-clang faults soak countdown-all lint asan tsan fuzz compatible gpu-bundle wheel deb rpm release versions cross frameworks fresh
countdown-run:
	@tests/build.sh $(MAKE) $(quietly) test-programs
	@$(TESTED_BY) tests/run.sh countdown-all
soak-run:
	@tests/build.sh $(MAKE) $(quietly) all
	@$(TESTED_BY) tests/run.sh soak
faults-run:
	@tests/build.sh $(MAKE) $(quietly) test-programs
	@$(TESTED_BY) tests/run.sh faults
test-programs: all $(UNIT) $(SIM) $(BUILD)/tests/structure $(COUNTDOWN) $(FAULTS) $(E2E_TOOLS) ## builds all that the tests run, and runs none
gpu-bundle-run:
	@tests/build.sh $(MAKE) $(quietly) gpu-bundle
	@$(TESTED_BY) tests/run.sh gpu-bundle
wheel-run:
	@tests/build.sh $(MAKE) $(quietly) wheel
	@$(TESTED_BY) tests/run.sh wheel
compatible-run:
	@tests/build.sh $(MAKE) $(quietly) all
	@$(TESTED_BY) tests/run.sh compatible
fresh-run: $(CONTAIN)
	@$(TESTED_BY) tests/run.sh fresh
sanitized = $(quietly) BUILD=$(BUILD)/$(1) SANITIZE=$(2) OPT='-O1 -g'
asan-run:
	@tests/build.sh $(MAKE) $(call sanitized,asan,address$(,)undefined) asan-parts
	@$(MAKE) $(call sanitized,asan,address$(,)undefined) asan-tests
tsan-run:
	@tests/build.sh $(MAKE) $(call sanitized,tsan,thread) tsan-parts
	@$(MAKE) $(call sanitized,tsan,thread) tsan-tests
asan-parts: all $(UNIT) $(E2E_TOOLS)
asan-tests:
	@$(TESTED_BY) SANITIZE=$(SANITIZE) tests/run.sh unit e2e python-all
asan-python: all $(CONTAIN)
	@$(TESTED_BY) SANITIZE=$(SANITIZE) tests/run.sh python-all
check-python: ## the tests of the Python package alone, the slow ones too (TESTS="arrays handles" for some)
	$(provide) build options test
	@$(MAKE) $(quietly) python-run
check-frameworks: ## the tests of the Python package, its examples too, with PyPI's newest PyTorch (python/tests/frameworks.txt)
	$(provide) build options test frameworks
	@$(MAKE) $(quietly) frameworks-run
frameworks-run:
	@tests/build.sh $(MAKE) $(quietly) test-programs
	@$(TESTED_BY) tests/run.sh frameworks
check-python-asan: ## the same with the extension and libhvd under AddressSanitizer and UBSan
	$(provide) build options test
	@$(MAKE) $(call sanitized,asan,address$(,)undefined) asan-python
python-run:
	@tests/build.sh $(MAKE) $(quietly) all
	@$(TESTED_BY) tests/run.sh python-all
tsan-parts: all $(UNIT)
tsan-tests:
	@$(TESTED_BY) SANITIZE=$(SANITIZE) tests/run.sh unit
FUZZ_SECONDS ?= 10
fuzz-run:
	@tests/build.sh $(MAKE) $(call sanitized,fuzz,fuzzer-no-link$(,)address$(,)undefined) CC=clang fuzz-programs
	@exec env BUILD=$(BUILD)/fuzz FUZZ_SECONDS=$(FUZZ_SECONDS) tests/run.sh fuzz-programs
fuzz-programs: $(FUZZ) $(CONTAIN)
# Fuzzers are run by hand and by check-all: what they call may change in between.
lint-run: $(BUILD)/tests/structure $(call obj,$(FUZZ_SRC))
	@BUILD=$(BUILD) tests/lint/lint.sh
, := ,

.PHONY: demo demo-run unit unit-parts check check-run test-programs check-all check-all-run check-faults faults-run soak soak-run check-fresh fresh-run check-wheel wheel-run check-gpu-bundle gpu-bundle-run check-countdown countdown-run check-compatible compatible-run check-cross check-versions check-asan asan-run asan-parts asan-tests asan-python check-python check-python-asan python-run check-frameworks frameworks-run \
        check-tsan tsan-run tsan-parts tsan-tests fuzz fuzz-run fuzz-programs lint lint-run bench
