# The programs of `make bench` beside hvd_bench: clocks, floors and the peers' allreduce. Those of a peer are made only where the
# peer is installed; run.sh says which are missing.
BENCH_TOOLS := $(addprefix $(BUILD)/bench/,interleave core_exchange spawn_floor shm_floor exchange_floor wire_floor delay_link line_delay) $(addprefix $(BUILD)/bench/,$(notdir $(wildcard tests/bench/*.py)))
BENCH_TOOLS += $(if $(call pkg_libs,libssh2),$(BUILD)/bench/ssh_floor)
BENCH_TOOLS += $(BUILD)/bench/elastic_step $(BUILD)/bench/gloo_central $(BUILD)/tests/gloo-client
BENCH_TOOLS += $(if $(call pkg_libs,pmix),$(BUILD)/bench/pmix_fence)
BENCH_TOOLS += $(BUILD)/bench/hvd_first $(BUILD)/bench/waiting
# Debian's, and those of MPICH5=DIRECTORY and OPENMPI5=DIRECTORY, each with bin/mpicc.
MPICC_mpich := $(shell command -v mpicc.mpich)
MPICC_openmpi := $(shell command -v mpicc.openmpi)
MPICC_mpich5 := $(if $(MPICH5),$(wildcard $(MPICH5)/bin/mpicc))
MPICC_openmpi5 := $(if $(OPENMPI5),$(wildcard $(OPENMPI5)/bin/mpicc))
BENCH_PEERS := $(foreach mpi,mpich openmpi mpich5 openmpi5,$(if $(MPICC_$(mpi)),\
    $(foreach program,ops start first waiting,$(BUILD)/bench/mpi_$(program).$(mpi))))
export MPICH5 OPENMPI5

$(BUILD)/bench/interleave $(BUILD)/bench/core_exchange $(BUILD)/bench/spawn_floor $(BUILD)/bench/shm_floor $(BUILD)/bench/ssh_floor \
        $(BUILD)/bench/exchange_floor $(BUILD)/bench/wire_floor $(BUILD)/bench/delay_link $(BUILD)/bench/line_delay: \
        $(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(if $(filter %/ssh_floor,$@),$(call pkg_libs,libssh2)) -lm -lpthread

$(BUILD)/bench/exchange_floor $(BUILD)/bench/wire_floor: $(BUILD)/obj/tests/bench/floor.o

# Beside the programs: hosts see the build's directory.
$(BUILD)/bench/%.py: tests/bench/%.py
	@mkdir -p $(@D)
	$(Q)cp $< $@

$(BUILD)/bench/gloo_central: $(call obj,tests/bench/gloo_central.c agent/rendezvous/gloo/gloo_store.c agent/rendezvous/gloo/gloo_path.c common/base/err.c)
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ -lpthread

$(BUILD)/bench/elastic_step: $(call obj,tests/bench/elastic_step.c) $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..'

$(BUILD)/obj/tests/bench/pmix_fence.o: CFLAGS_ALL += $(call pkg_cflags,pmix)
$(BUILD)/bench/pmix_fence: $(BUILD)/obj/tests/bench/pmix_fence.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(call pkg_libs,pmix)

$(BUILD)/bench/hvd_first $(BUILD)/bench/waiting: $(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(BUILD)/obj/tests/bench/bench_call.o $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..'

define mpi_rule
$(BUILD)/bench/$(1).%: tests/bench/$(2).c tests/bench/resnet50.h
	@mkdir -p $$(@D)
	$$(MPICC_$$*) -std=gnu17 -O2 $(WARN) -D_GNU_SOURCE -DWITH_MPI -I. -o $$@ $$<
endef
$(foreach program,mpi_ops mpi_start mpi_first,$(eval $(call mpi_rule,$(program),$(program))))
$(eval $(call mpi_rule,mpi_waiting,waiting))

# The floor adds as fast as the machine can.
$(BUILD)/obj/tests/bench/shm_floor.o: OPT += -O3

bench: $(BENCH_TOOLS) $(BENCH_PEERS)
