# The simulation: production sources once more, built so that the compiler tells of every access to memory, and linked to what stands in
# for the clock, the links and the system calls that wait. They have few slots (slots.h), so names are forgotten. Every rank gets a copy of libhvd-sim.so.
SIM_ENGINE := $(filter-out collectives/engine/main.c,$(ENGINE_SRC))
SIM_SRC    := $(wildcard tests/sim/*.c)
SIM        := $(BUILD)/tests/sim $(BUILD)/tests/sim-many $(BUILD)/tests/libhvd-sim.so
SIM_CALLS  := mmap munmap reduce_range syscall sched_yield epoll_wait socket memfd_create close connect write sendmsg recvmsg getsockopt \
              getenv sysconf sched_getaffinity sched_getcpu
sim_wrap   := $(addprefix -Wl$(comma)--wrap=,$(SIM_CALLS))
sim_obj     = $(patsubst %.c,$(BUILD)/obj/simulated/%.o,$(1))

$(BUILD)/obj/simulated/%.o: %.c Makefile tests/sim/sim.mk | $(GEN).h
	@mkdir -p $(@D)
	$(call note,CC  )
	$(Q)$(CC) $(filter-out -fsanitize=%,$(CFLAGS_ALL)) -fsanitize=thread -fno-builtin-memcpy -Dmemcpy=sim_memcpy -include tests/sim/slots.h -MMD -MP -c -o $@ $<
$(BUILD)/tests/libhvd-sim.so: $(call sim_obj,$(CLIENT_SRC) $(SHM_SRC)) $(call obj,$(ALGO_SRC) common/base/crc32c.c common/base/err.c common/base/log.c common/base/fsm.c) $(DEVICE_OBJ) collectives/libhvd.map
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,--version-script=collectives/libhvd.map $(sim_wrap) -o $@ $(filter %.o,$^) -lm -lpthread
$(BUILD)/tests/sim: $(call obj,$(SIM_SRC) launcher/elastic/roster.c) $(call sim_obj,$(SIM_ENGINE) $(SHM_SRC)) $(call obj,$(ALGO_SRC)) $(DEVICE_OBJ) $(BUILD)/libcommon.a \
        | $(BUILD)/tests/libhvd-sim.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -Wl,-E $(sim_wrap) -o $@ $(filter %.o,$^) $(BUILD)/libcommon.a $(PROTO_LIBS) -lm -lpthread -ldl
# The same with many hosts, for the figures of agreement.c.
$(BUILD)/obj/many/%.o: %.c Makefile tests/sim/sim.mk | $(GEN).h
	@mkdir -p $(@D)
	$(call note,CC  )
	$(Q)$(CC) $(CFLAGS_ALL) -DSIM_HOSTS=128 -DSIM_RANKS=2 -MMD -MP -c -o $@ $<
$(BUILD)/tests/sim-many: $(patsubst %.c,$(BUILD)/obj/many/%.o,$(SIM_SRC)) $(call obj,launcher/elastic/roster.c) $(call sim_obj,$(SIM_ENGINE) $(SHM_SRC)) $(call obj,$(ALGO_SRC)) \
        $(DEVICE_OBJ) $(BUILD)/libcommon.a | $(BUILD)/tests/libhvd-sim.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -Wl,-E $(sim_wrap) -o $@ $(filter %.o,$^) $(BUILD)/libcommon.a $(PROTO_LIBS) -lm -lpthread -ldl
