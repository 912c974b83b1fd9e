# The Python package, made in $(BUILD)/python: PYTHONPATH=$(BUILD)/python finds it. Left out where there is no Python.h of 3.11 or newer.
#
# The extension is in CPython's stable ABI of 3.11, so one file serves every newer CPython with a GIL, whichever Python.h it was compiled
# with. It finds libhvd in $(BUILD), or where PREFIX/lib is from a folder of packages: PREFIX/lib/python3.11/site-packages (a venv, --user),
# PREFIX/lib64/python3.11/site-packages (Red Hat).

PYTHON         ?= $(firstword $(wildcard /usr/bin/python3) python3)
# The folder of Python.h, empty where there is none that will do.
PYTHON_INCLUDE := $(shell $(PYTHON) -c 'import os, sys, sysconfig; path = sysconfig.get_path("include"); \
    print(path if sys.version_info >= (3, 11) and os.path.exists(path + "/Python.h") else "")' 2>/dev/null)
PYTHON_TO      := $(BUILD)/python
PYTHON_EXT_SRC := $(wildcard python/src/*.c)
PYTHON_EXT     := $(PYTHON_TO)/hvdrun/_hvd.abi3.so
PYTHON_SRC     := python/hvdrun_horovod.py python/hvdrun_torch.py $(shell find python/hvdrun python/horovod -name '*.py' -o -name '*.pyi' -o -name py.typed 2>/dev/null)
# What tells pip and PyTorch of the package. A wheel has a METADATA of its own.
PYTHON_INFO    := $(addprefix $(PYTHON_TO)/hvdrun-$(VERSION).dist-info/,METADATA entry_points.txt)
PYTHON_PACKAGE := $(if $(PYTHON_INCLUDE),$(PYTHON_EXT) $(PYTHON_INFO) $(patsubst python/%,$(PYTHON_TO)/%,$(PYTHON_SRC)))

$(call obj,$(PYTHON_EXT_SRC)): CFLAGS_ALL += -DPy_LIMITED_API=0x030B0000 -isystem $(PYTHON_INCLUDE) -fvisibility=hidden
$(PYTHON_EXT): $(call obj,$(PYTHON_EXT_SRC)) $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(call note,LINK)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd $(foreach d,../.. ../../.. ../../../../lib,-Wl$(comma)-rpath$(comma)'$$ORIGIN/$(d)') -lm
$(PYTHON_TO)/hvdrun-$(VERSION).dist-info/METADATA:
	@mkdir -p $(@D)
	$(Q)printf '%s\n' 'Metadata-Version: 2.1' 'Name: hvdrun' 'Version: $(VERSION)' > $@
$(PYTHON_TO)/hvdrun-$(VERSION).dist-info/entry_points.txt: python/entry_points.txt
	@mkdir -p $(@D)
	$(Q)cp -f $< $@
$(PYTHON_TO)/%: python/%
	@mkdir -p $(@D)
	$(Q)cp -f $< $@

python: $(PYTHON_PACKAGE) ## the Python package in $(BUILD)/python (needs Python.h, 3.11 or newer)
	$(if $(PYTHON_INCLUDE),,$(error python: $(PYTHON) is not CPython 3.11 or newer with its headers (python3-dev); PYTHON=... names another))

.PHONY: python
