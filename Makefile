# hvdrun: one Makefile for everything. `make help` lists the targets; all that is made lies in $(BUILD).
VERSION  := 0.2.0
SONAME   := libhvd.so.$(firstword $(subst ., ,$(VERSION)))
BUILD    ?= build
# Its absolute path names the same targets, so that each knows the headers which the other was built with.
override BUILD := $(patsubst $(CURDIR)/%,%,$(BUILD))
PREFIX   ?= /usr/local
DESTDIR  ?=
CC       ?= gcc
OPT      ?= -O2 -g1
SANITIZE ?=
WITH_NCCL ?= auto
WERROR   ?= $(if $(CI),-Werror)
PKG_CONFIG ?= pkg-config

ifeq ($(origin CC),default)
CC := gcc
endif
# The tools beside the compiler: those of another machine when it compiles for one.
tool    = $(shell $(CC) -print-prog-name=$(1))
LD      = $(call tool,ld)
AR      = $(call tool,ar)
OBJCOPY = $(call tool,objcopy)

# A plain `make` uses all processors; -j says otherwise.
ifeq ($(MAKELEVEL)$(filter-out all python,$(MAKECMDGOALS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

include tests/deps.mk

# GPUs: CUDA and NCCL are opened at run time and need nothing here. auto: with the kernels of pack.cu if nvcc is found; yes: it must
# be; no: without anything of GPUs.
ifeq ($(filter auto yes no,$(WITH_NCCL)),)
$(error WITH_NCCL=$(WITH_NCCL): it is auto, yes or no)
endif
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(if $(filter no,$(WITH_NCCL)),,$(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc)))
ifeq ($(WITH_NCCL)$(NVCC),yes)
$(error WITH_NCCL=yes: there is no nvcc in $(CUDA_HOME)/bin (CUDA_HOME) or PATH)
endif

# What is made, a line each; V=1 shows the commands.
Q    := $(if $(V),,@)
note  = $(if $(V),,@echo '  $(1) $(patsubst $(BUILD)/%,%,$@)')
comma := ,
pkg_cflags = $(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null)
pkg_libs   = $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null)
# What a module links to: the libraries (1), or in a wheel the archives (2) and then libraries that lie beside the module (3).
module_libs = $(if $(filter $(WHEEL)/%,$@),$(patsubst %,-l:lib%.a,$(2)) $(addprefix -l,$(3)) $(WHEEL_LDFLAGS),$(call pkg_libs,$(1)))

WARN   := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wformat=2 \
          -Wno-format-nonliteral -Wno-unused-parameter
# What makes faults of memory harder to use. No path of the build is in a file, so two builds of one commit are the same.
X86    := $(filter x86_64%,$(shell $(CC) -dumpmachine))
HARDEN := -fstack-protector-strong -fstack-clash-protection $(if $(X86),-fcf-protection) \
          $(if $(SANITIZE)$(filter -O0,$(OPT)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
CFLAGS_ALL = -std=gnu17 $(OPT) $(WARN) $(WERROR) -fPIC -fno-strict-aliasing -ffp-contract=off $(HARDEN) -ffile-prefix-map=$(CURDIR)=. -D_GNU_SOURCE \
          -DHVD_VERSION='"$(VERSION)"' -I. -I$(BUILD)/gen -Icollectives $(if $(filter no,$(WITH_NCCL)),-DHVD_WITHOUT_GPU) $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer) \
          $(CFLAGS)
LDFLAGS_ALL = $(if $(SANITIZE),-fsanitize=$(SANITIZE)) -Wl,-z,relro,-z,now -Wl,--as-needed $(LDFLAGS)

# Both come as archives too, and those are taken where they are there: two libraries less to load save a quarter of a millisecond at each
# start of each program (SHARED=1 takes the shared ones). libuv is taken whole, because modules call it through the program.
archive    = $(if $(SHARED),,$(wildcard $(shell $(PKG_CONFIG) --variable=libdir $(1) 2>/dev/null)/$(2)))
UV_ARCHIVE := $(call archive,libuv,libuv_a.a)
UV_LIBS    := $(if $(UV_ARCHIVE),-Wl$(comma)--whole-archive $(UV_ARCHIVE) -Wl$(comma)--no-whole-archive -lpthread,$(call pkg_libs,libuv))
PROTO_LIBS := $(or $(call archive,libprotobuf-c,libprotobuf-c.a),$(call pkg_libs,libprotobuf-c))

# ---- what is made of what (a folder is a part: see README) -----------------------------------------------------------
# The C files of some folders and all folders below them.
in_folders    = $(sort $(shell find $(1) -name '*.c'))

GEN          := $(BUILD)/gen/common/protocol/control.pb-c
COMMON_SRC   := $(filter-out common/modules/%,$(call in_folders,common))
AUTH_SRC     := common/modules/auth.c
TLS_SRC      := common/modules/tls.c
SYSTEMD_SRC  := common/modules/systemd.c
YAML_SRC     := common/modules/yaml.c
SSH_SRC      := $(call in_folders,launcher/transport/ssh)
LAUNCHER_SRC := $(filter-out $(SSH_SRC),$(call in_folders,launcher))
# Modules that hvdagent opens: a file each, which alone knows the library.
METRICS_SRC  := agent/daemon/metrics/metrics_http.c
GLOO_SRC     := agent/rendezvous/gloo/gloo_http.c
TOPOLOGY_SRC := agent/worker/topology_hwloc.c
PMIX_SRC     := $(wildcard agent/rendezvous/pmix_server/*.c)
PMIX_BOTH_SRC := agent/rendezvous/plan.c $(addprefix agent/rendezvous/pmix_client/,pmix_names.c pmix_relay.c pmix_help.c)
AGENT_SRC    := $(filter-out agent/ctl/% $(METRICS_SRC) $(GLOO_SRC) $(TOPOLOGY_SRC) $(PMIX_SRC),$(call in_folders,agent))
CTL_SRC      := $(wildcard agent/ctl/*.c) $(addprefix agent/daemon/,protocol/wire.c metrics/metric_table.c)
SHM_SRC      := $(call in_folders,collectives/shm collectives/local)
ALGO_SRC     := $(call in_folders,collectives/kernels collectives/algorithms)
DEVICE_SRC   := $(call in_folders,collectives/gpu)
CLIENT_SRC   := $(call in_folders,collectives/client)
ENGINE_SRC   := $(call in_folders,collectives/engine collectives/backends)

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

COMMON_OBJ := $(call obj,$(COMMON_SRC)) $(BUILD)/obj/gen/control.pb-c.o
PMIX_SERVER := $(if $(call pkg_libs,pmix),$(BUILD)/modules/hvd-pmix)
PROGRAMS   := $(BUILD)/hvdrun $(BUILD)/hvdagent $(BUILD)/hvdctl $(BUILD)/modules/hvd-engine $(PMIX_SERVER)
MODULES    := $(BUILD)/modules/ssh.so $(BUILD)/modules/auth.so $(BUILD)/modules/tls.so
MODULES    += $(if $(call pkg_libs,yaml-0.1),$(BUILD)/modules/yaml.so)
MODULES    += $(if $(call pkg_libs,libmicrohttpd),$(BUILD)/modules/gloo.so)
MODULES    += $(if $(call pkg_libs,libmicrohttpd),$(BUILD)/modules/metrics.so)
MODULES    += $(if $(call pkg_libs,libsystemd),$(BUILD)/modules/systemd.so)
MODULES    += $(if $(call pkg_libs,hwloc),$(BUILD)/modules/topology.so)
LIBS       := $(BUILD)/libhvd.so $(BUILD)/libhvd.a
TRAIN_SRC    := $(wildcard examples/train/*.c)
EXAMPLES   := $(BUILD)/examples/train
TRAIN_CUDA := $(BUILD)/examples/train_cuda
HVD_BENCH  := $(BUILD)/bench/hvd_bench
HVD_BENCH_SRC := $(addprefix tests/bench/,hvd_bench.c bench_call.c bench_run.c bench_data.c bench_ops.c bench_model.c)

CONTAIN    := $(BUILD)/tests/contain
WHEEL      := $(BUILD)/wheel

include python/python.mk

.DEFAULT_GOAL := all
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:

# Parts for which this machine lacks the library: one line at the end of the build; `hvdrun --check-build` says the same later.
left_out  = $(if $(call pkg_libs,$(1)),,$(2) ($(3))$(comma))
LEFT_OUT := $(strip $(call left_out,pmix,PMIx for MPI programs,libpmix-dev) \
    $(call left_out,libmicrohttpd,the store for Gloo and metrics,libmicrohttpd-dev) \
    $(call left_out,yaml-0.1,configuration files,libyaml-dev) $(call left_out,hwloc,binding to processors,libhwloc-dev) \
    $(call left_out,libsystemd,the managed agent,libsystemd-dev) \
    $(if $(PYTHON_PACKAGE),,the Python package (python3-dev$(comma) Python 3.11 or newer)$(comma)))

all: $(PROGRAMS) $(MODULES) $(LIBS) $(EXAMPLES) $(HVD_BENCH) $(CONTAIN) $(PYTHON_PACKAGE) ## everything
	$(if $(LEFT_OUT),@echo 'left out of this build: $(subst $(comma)END,,$(LEFT_OUT)END); `make deps` installs the packages in brackets')

$(BUILD)/gen/common/protocol/control.pb-c.c: common/protocol/control.proto | check-deps
	@mkdir -p $(@D)
	$(call note,GEN )
	$(Q)protoc --c_out=$(BUILD)/gen $<
$(BUILD)/gen/common/protocol/control.pb-c.h: $(BUILD)/gen/common/protocol/control.pb-c.c
	@: # so that make looks again how old it is

$(BUILD)/obj/gen/control.pb-c.o: $(GEN).c
	@mkdir -p $(@D)
	$(call note,CC  )
	$(Q)$(CC) $(CFLAGS_ALL) -c -o $@ $<

$(BUILD)/obj/%.o: %.c Makefile | $(GEN).h
	@mkdir -p $(@D)
	$(call note,CC  )
	$(Q)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(BUILD)/obj/common/page/page.o: common/page/page.html

$(BUILD)/libcommon.a: $(COMMON_OBJ)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

# Modules find common/ in the program that opens them: export it, whole.
$(BUILD)/hvdrun: $(call obj,$(LAUNCHER_SRC))
$(BUILD)/hvdagent: $(call obj,$(AGENT_SRC))
$(BUILD)/hvdrun $(BUILD)/hvdagent: $(BUILD)/libcommon.a
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -pie -Wl,-E -o $@ $(filter %.o,$^) -Wl,--whole-archive $(BUILD)/libcommon.a -Wl,--no-whole-archive $(UV_LIBS) $(PROTO_LIBS)
$(BUILD)/hvdctl: $(call obj,$(CTL_SRC)) $(BUILD)/libcommon.a
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -pie -o $@ $^ $(UV_LIBS) $(PROTO_LIBS)
$(BUILD)/modules/hvd-engine: $(call obj,$(ENGINE_SRC) $(ALGO_SRC) $(SHM_SRC)) $(BUILD)/obj/gen/pack_image.o $(call obj,$(DEVICE_SRC)) $(BUILD)/libcommon.a
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -pie -Wl,-E -o $@ $(filter %.o,$^) $(BUILD)/libcommon.a $(PROTO_LIBS) -lm -lpthread
# The modules: .so files that a program opens when a job needs them. A module is left out where its library is not installed, and then
# a job has no --config-file (yaml), no managed agent (systemd), no Gloo rendezvous, no metrics, no binding (topology), no PMIx.
# $(call module_rule,NAME,sources,packages,archives,libraries): what stands in a wheel for the packages comes last
define module_rule
$(BUILD)/modules/$(1).so $(WHEEL)/modules/$(1).so: $(call obj,$(2))
	@mkdir -p $$(@D)
	$$(call note,LINK)
	$$(Q)$$(CC) $$(LDFLAGS_ALL) -shared -o $$@ $$^ $$(call module_libs,$(3),$(4),$(5))
endef
$(eval $(call module_rule,ssh,$(SSH_SRC),libssh2 libcrypto,ssh2 ssl crypto z))
$(eval $(call module_rule,auth,$(AUTH_SRC),libcrypto,crypto))
$(eval $(call module_rule,tls,$(TLS_SRC),libssl libcrypto,ssl crypto))
$(eval $(call module_rule,yaml,$(YAML_SRC),yaml-0.1,yaml))
$(eval $(call module_rule,systemd,$(SYSTEMD_SRC),libsystemd))
$(eval $(call module_rule,gloo,$(GLOO_SRC) agent/rendezvous/gloo/gloo_path.c,libmicrohttpd,,microhttpd))
$(eval $(call module_rule,metrics,$(METRICS_SRC),libmicrohttpd,,microhttpd))
$(eval $(call module_rule,topology,$(TOPOLOGY_SRC) agent/worker/cpus.c,hwloc,,hwloc))
$(call obj,$(TOPOLOGY_SRC)): CFLAGS_ALL += $(call pkg_cflags,hwloc)
$(call obj,$(PMIX_SRC)): CFLAGS_ALL += $(call pkg_cflags,pmix) $(call pkg_cflags,hwloc) $(if $(call pkg_libs,hwloc),-DHVD_HWLOC)
$(BUILD)/modules/hvd-pmix: $(call obj,$(PMIX_SRC) $(PMIX_BOTH_SRC)) $(BUILD)/libcommon.a
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -pie -o $@ $(filter %.o,$^) $(BUILD)/libcommon.a $(UV_LIBS) $(PROTO_LIBS) $(call pkg_libs,pmix) $(call pkg_libs,hwloc)

# What nvcc is to make code for: machine code for those generations that it knows, and PTX of the oldest of them, which the driver
# makes code of for all others. Sets $code.
GPU_CODES  := sm_70 sm_75 sm_80 sm_90 sm_100
gpu_code    = known=" $$($(NVCC) --list-gpu-code | tr '\n' ' ')" && code= && oldest= && \
    for a in $(GPU_CODES); do case "$$known" in *" $$a "*) code="$$code -gencode arch=compute_$${a\#sm_},code=$$a"; \
        : "$${oldest:=$${a\#sm_}}";; esac; done && \
    { [ "$$oldest" ] || { echo "$(NVCC) knows none of $(GPU_CODES)" >&2; false; }; } && \
    code="$$code -gencode arch=compute_$$oldest,code=compute_$$oldest"

# The kernels of libhvd, as bytes in a C file. Without nvcc there are none, and the driver copies.
PACK_IMAGE := $(BUILD)/gen/collectives/gpu/pack_image
$(PACK_IMAGE).fatbin: collectives/gpu/pack.cu collectives/gpu/pack_batch.h collectives/hvd.h Makefile
	@mkdir -p $(@D)
	$(call note,NVCC)
	$(Q)$(gpu_code) && $(NVCC) -fatbin -std=c++14 -O3 -I. -Icollectives $$code -o $@ $<
$(PACK_IMAGE).c: $(if $(NVCC),$(PACK_IMAGE).fatbin) Makefile
	@mkdir -p $(@D)
	$(call note,GEN )
	$(Q){ echo '#include <stddef.h>'; echo 'extern const unsigned char pack_image[]; extern const size_t pack_image_size;'; \
	    echo '__attribute__((aligned(64))) const unsigned char pack_image[] = {'; \
	    $(if $(NVCC),od -An -v -tu1 -w32 $< | sed 's/  */$(comma)/g; s/^$(comma)//; s/$$/$(comma)/';) \
	    echo '0};'; echo 'const size_t pack_image_size = sizeof pack_image - 1;'; \
	    echo "extern const int pack_image_cuda; const int pack_image_cuda = $(if $(NVCC),$$($(NVCC) --version | sed -nE 's/.*release ([0-9]+)\.([0-9]+).*/\1 * 1000 + \2 * 10/p') +) 0;"; } > $@
$(BUILD)/obj/gen/pack_image.o: $(PACK_IMAGE).c
	@mkdir -p $(@D)
	$(call note,CC  )
	$(Q)$(CC) $(CFLAGS_ALL) -fvisibility=hidden -c -o $@ $<
DEVICE_OBJ := $(call obj,$(DEVICE_SRC)) $(BUILD)/obj/gen/pack_image.o

# libhvd shows the names of hvd.h and nothing else, as a shared and as a static library.
CLIENT_OBJ := $(call obj,$(CLIENT_SRC) $(SHM_SRC) $(ALGO_SRC)) $(DEVICE_OBJ) $(call obj,common/base/err.c common/base/fsm.c common/base/log.c common/base/clock.c common/base/crc32c.c common/base/json.c common/process/quiet_thread.c common/base/ranks.c common/base/trace.c common/status/flight.c)
# What hvd.h declares is visible by its own words; the map keeps in what comes from common/.
$(call obj,$(CLIENT_SRC) $(SHM_SRC) $(ALGO_SRC) $(DEVICE_SRC)): CFLAGS_ALL += -fvisibility=hidden
$(BUILD)/libhvd.so: $(CLIENT_OBJ) collectives/libhvd.map
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=collectives/libhvd.map -o $@ $(CLIENT_OBJ) -lm -lpthread
	$(Q)ln -sf libhvd.so $(BUILD)/$(SONAME)
$(BUILD)/libhvd.a: $(CLIENT_OBJ) collectives/libhvd.map
	@rm -f $@
	$(Q)$(LD) -r -o $(BUILD)/obj/libhvd.o $(CLIENT_OBJ)
	$(Q)$(OBJCOPY) --wildcard --keep-global-symbol='hvd_*' $(BUILD)/obj/libhvd.o
	$(Q)$(AR) rcs $@ $(BUILD)/obj/libhvd.o

# The inner loops, once for each kind of processor: vector code. No multiplication is joined with an addition anywhere (-ffp-contract),
# so all processors give the same bits.
$(BUILD)/obj/collectives/kernels/reduce_%.o $(BUILD)/obj/collectives/kernels/adasum.o: OPT += -O3
ifneq ($(X86),)
$(BUILD)/obj/collectives/kernels/reduce_avx2.o: override OPT += -mavx2 -mf16c
$(BUILD)/obj/collectives/kernels/reduce_avx512.o: override OPT += -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
endif
$(BUILD)/obj/examples/%.o: OPT += -O3
# Debuggers read the types of these tables.
$(BUILD)/obj/launcher/parts/debugger.o: OPT += -g
# The test of core files asks a debugger for the session's key.
$(BUILD)/obj/agent/session/session.o: OPT += -g
$(BUILD)/examples/train: $(call obj,$(TRAIN_SRC)) $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..' -lm
# The same trainer on a GPU: wants the CUDA Toolkit, so nothing else depends on it.
CUDA_LIBS := $(firstword $(wildcard $(CUDA_HOME)/lib64 $(if $(realpath $(NVCC)),$(dir $(realpath $(NVCC)))../lib64)))
$(BUILD)/obj/examples/train/compute_cuda.o: examples/train/compute_cuda.cu $(wildcard examples/train/*.h) Makefile
	@mkdir -p $(@D)
	$(if $(NVCC),,$(error train_cuda: $(if $(filter no,$(WITH_NCCL)),WITH_NCCL=no,there is no nvcc in $(CUDA_HOME)/bin (CUDA_HOME) or PATH)))
	@echo '#include <cublas_v2.h>' | $(NVCC) -E -x cu - > /dev/null 2>&1 || \
	    { echo "train_cuda: $(NVCC) finds no cublas_v2.h: the headers of cuBLAS are not installed" >&2; false; }
	$(call note,NVCC)
	$(Q)$(gpu_code) && $(NVCC) -std=c++17 -O2 $$code -Xcompiler -Wall,-Wextra$(if $(WERROR),$(comma)-Werror) -Icollectives -c -o $@ $<
$(TRAIN_CUDA): $(filter-out %/compute_host.o,$(call obj,$(TRAIN_SRC))) $(BUILD)/obj/examples/train/compute_cuda.o $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..' \
	    $(if $(CUDA_LIBS),-L$(CUDA_LIBS) -Wl$(comma)-rpath$(comma)$(CUDA_LIBS)) -lcublas -lcudart -lstdc++ -lm
train_cuda: $(TRAIN_CUDA) ## the trainer on a GPU (needs the CUDA Toolkit: CUDA_HOME)
$(BUILD)/bench/hvd_bench: $(call obj,$(HVD_BENCH_SRC)) $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..' -lm

include contrib/install.mk
include contrib/wheel/wheel.mk
include contrib/debian/deb.mk
include contrib/rpm/rpm.mk
include contrib/release/release.mk
include tests/tests.mk
include tests/bench/bench.mk

clean: ## removes $(BUILD)
	rm -rf $(BUILD)

help: ## this list
	@awk -F':.*## ' '/^[a-z][a-z_-]*:.*## /{printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: all clean help train_cuda

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
