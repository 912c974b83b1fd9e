# The test doubles of CUDA's driver and of NCCL (tests/gpu/double). A program gets them instead of the real ones by
# LD_LIBRARY_PATH=$(BUILD)/tests/gpu. Where the real headers are, their signatures are compared with those first.
GPU_DOUBLE_SRC  := $(wildcard tests/gpu/double/*.c)
GPU_DOUBLE_NCCL := $(wildcard tests/gpu/double/nccl_*.c)
GPU_DOUBLE      := $(BUILD)/tests/gpu/libcuda.so.1 $(BUILD)/tests/gpu/libnccl.so.2
GPU_HEADERS     := $(if $(wildcard $(CUDA_HOME)/include/nccl.h),$(wildcard $(CUDA_HOME)/include/cuda.h))

$(BUILD)/tests/gpu/signatures: $(GPU_DOUBLE_SRC) $(wildcard tests/gpu/double/*.h) Makefile tests/gpu/gpu.mk
	@mkdir -p $(@D)
	$(call note,SAME)
	$(Q)for file in $(GPU_DOUBLE_SRC); do \
	    $(CC) $(CFLAGS_ALL) -Wno-missing-prototypes -DDOUBLE_REAL_HEADERS -isystem $(CUDA_HOME)/include -fsyntax-only $$file || exit; done
	@touch $@
$(BUILD)/tests/gpu/libcuda.so.1: $(call obj,$(filter-out $(GPU_DOUBLE_NCCL),$(GPU_DOUBLE_SRC))) | $(if $(GPU_HEADERS),$(BUILD)/tests/gpu/signatures)
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,-z,nodelete -o $@ $^ -lm -lpthread
$(BUILD)/tests/gpu/libnccl.so.2: $(call obj,$(GPU_DOUBLE_NCCL)) $(BUILD)/tests/gpu/libcuda.so.1
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libnccl.so.2 -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,-rpath,'$$ORIGIN' -o $@ $^ -lm -lpthread

# And of nvidia-cuda-mps-control, found by PATH.
MPS_DOUBLE := $(BUILD)/tests/mps/nvidia-cuda-mps-control
$(MPS_DOUBLE): $(BUILD)/obj/tests/gpu/double/mps/control.o
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^

# Their own tests are linked to them; others (tests/unit/test_gpu_*.c) open what the loader finds.
$(filter $(BUILD)/tests/test_gpu_%,$(UNIT)): | $(GPU_DOUBLE)
$(filter $(BUILD)/tests/test_gpu_double%,$(UNIT)): private CHECK_LIBS += -Wl,-rpath,'$$ORIGIN/gpu' $(GPU_DOUBLE)

# The trainer on a GPU, with the kernels of compute_cuda.cu compiled for the host: over an emulation of CUDA's runtime and cuBLAS
# (tests/gpu/emulate) on the double of the driver. Needs a C++ compiler, as nvcc does.
GPU_TRAIN     := $(BUILD)/tests/train_cuda
GPU_TRAIN_SRC := $(wildcard tests/gpu/emulate/*.c)
HAVE_CXX      := $(shell command -v $(firstword $(CXX)))
$(BUILD)/tests/gpu/emulated: $(GPU_TRAIN_SRC) $(wildcard tests/gpu/emulate/*.h tests/gpu/double/*.h) Makefile tests/gpu/gpu.mk
	@mkdir -p $(@D)
	$(call note,SAME)
	$(Q)for file in $(GPU_TRAIN_SRC); do \
	    $(CC) $(CFLAGS_ALL) -Wno-missing-prototypes -DDOUBLE_REAL_HEADERS -isystem $(CUDA_HOME)/include -fsyntax-only $$file || exit; done
	@touch $@
$(BUILD)/gen/examples/train/compute_cuda.cc: examples/train/compute_cuda.cu tests/gpu/emulate/launches.sed
	@mkdir -p $(@D)
	$(call note,GEN )
	$(Q)sed -f tests/gpu/emulate/launches.sed $< > $@
$(BUILD)/obj/gen/compute_cuda.o: $(BUILD)/gen/examples/train/compute_cuda.cc $(wildcard examples/train/*.h tests/gpu/emulate/*.h) Makefile tests/gpu/gpu.mk
	@mkdir -p $(@D)
	$(call note,C++ )
	$(Q)$(CXX) -std=c++17 $(OPT) -O3 -Wall -Wextra $(WERROR) -fPIE -fno-exceptions -fno-rtti $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer) \
	    -I. -Itests/gpu/emulate -Iexamples/train -Icollectives -include cuda_runtime.h -c -o $@ $<
$(call obj,$(GPU_TRAIN_SRC)): OPT += -O3
$(GPU_TRAIN): $(filter-out %/compute_host.o,$(call obj,$(TRAIN_SRC))) $(BUILD)/obj/gen/compute_cuda.o $(call obj,$(GPU_TRAIN_SRC)) \
    $(BUILD)/libhvd.so $(BUILD)/tests/gpu/libcuda.so.1 | $(GPU_DOUBLE) $(if $(wildcard $(CUDA_HOME)/include/cublas_v2.h),$(BUILD)/tests/gpu/emulated)
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(BUILD)/tests/gpu/libcuda.so.1 -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN/gpu' -lm

# hvd_gpu_bench: beside direct NCCL; under hvdrun, on a machine with GPUs.
GPU_BENCH     := $(BUILD)/bench/hvd_gpu_bench
GPU_BENCH_SRC := $(wildcard tests/gpu/bench*.c) tests/gpu/witness_map.c tests/bench/bench_call.c $(addprefix collectives/gpu/,driver.c library.c nccl.c)
$(GPU_BENCH): $(call obj,$(GPU_BENCH_SRC)) $(BUILD)/libcommon.a $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o %.a,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..' -lm -lpthread

# What tests/gpu/run needs, in one target: it says what is there (probe) and runs the rest.
GPU_TESTS := $(filter $(BUILD)/tests/test_gpu_%,$(UNIT))
$(BUILD)/tests/gpu/probe: $(call obj,tests/gpu/probe.c $(addprefix collectives/gpu/,driver.c library.c nccl.c)) $(BUILD)/libcommon.a
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ -ldl -lpthread
ASK_SRC := tests/gpu/ask.c tests/gpu/ask_kernels.c collectives/kernels/dtype.c $(addprefix collectives/gpu/,driver.c library.c nccl.c pack.c)
$(BUILD)/tests/gpu/ask: $(call obj,$(ASK_SRC)) $(BUILD)/obj/gen/pack_image.o $(BUILD)/libcommon.a
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ -ldl -lpthread
# It comes to the real dlsym by a jump, which compilers make from -O2 on.
$(BUILD)/obj/tests/gpu/witness.o: override OPT += -O2
$(BUILD)/tests/gpu/witness.so: $(call obj,tests/gpu/witness.c tests/gpu/witness_map.c)
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -o $@ $^ -ldl -lpthread
GPU_TOOLS := $(GPU_DOUBLE) $(MPS_DOUBLE) $(if $(HAVE_CXX),$(GPU_TRAIN))
GPU_RUN   := $(PROGRAMS) $(MODULES) $(BUILD)/libhvd.so $(EXAMPLES) $(CONTAIN) $(GPU_TESTS) $(GPU_TOOLS) $(addprefix $(BUILD)/tests/gpu/,probe ask witness.so) \
    $(E2E_GPU_WORKERS) $(addprefix $(BUILD)/tests/,steps nvml/libnvidia-ml.so.1) $(GPU_BENCH) $(if $(NVCC),$(TRAIN_CUDA)) $(PYTHON_PACKAGE)
gpu-tests: all $(GPU_RUN)

# The same for a machine that has no compiler: tests/gpu/first runs it there.
GPU_BUNDLE ?= $(BUILD)-gpu
gpu-bundle: gpu-tests ## what tests/gpu/first runs on a machine with a GPU and nothing else, in $(BUILD)-gpu
	@tests/gpu/bundle $(BUILD) $(GPU_BUNDLE) $(GPU_RUN)
.PHONY: gpu-tests gpu-bundle
