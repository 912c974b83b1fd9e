# make wheel: two wheels in $(BUILD)/dist, for pip on machines with glibc 2.34 or newer (Debian 12, Ubuntu 22.04, RHEL 9).
#
# Modules are linked anew for them. What auth.so, tls.so and ssh.so need comes from archives, since --send-agent sends the modules alone;
# libmicrohttpd and hwloc, with their own libraries, lie beside the modules: these of the LGPL must be replaceable.
# Left out: the managed agent (libsystemd). hvd-pmix takes the machine's libpmix.

WHEEL_MODULES = $(patsubst $(BUILD)/%,$(WHEEL)/%,$(filter-out %/systemd.so,$(MODULES)))
# DT_RPATH, not DT_RUNPATH: it holds for the libraries of these libraries too.
WHEEL_LDFLAGS = -Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN'

wheel: all $(WHEEL_MODULES) ## two wheels for pip in $(BUILD)/dist (needs python3-wheel)
	$(if $(PYTHON_PACKAGE),,$(error wheel: the Python package is left out of this build (python3-dev)))
	@rm -rf $(WHEEL)/stage
	$(Q)$(MAKE) --no-print-directory install DESTDIR=$(abspath $(WHEEL)/stage) PREFIX=/ PYTHON_SITE= MODULES='$(WHEEL_MODULES)' > $(WHEEL)/install.log
	$(call note,GEN )
	$(Q)PYTHON=$(PYTHON) contrib/wheel/make.sh $(BUILD) $(VERSION)

.PHONY: wheel
