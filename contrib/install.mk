# make install and make uninstall, in PREFIX, below DESTDIR: what runs, what is linked to, and what is read.

MAN_PAGES = $(wildcard man/*.[1-8])
TO        = $(DESTDIR)$(PREFIX)
# Linker and systemd look there by themselves.
STANDARD  = $(filter /usr /usr/local,$(PREFIX))
# Every other name that a page of section 3 has in its NAME is a page that reads that one: NAME:PAGE.
MAN_NAMES = $(shell awk 'FNR == 1 {here = 1} /^\.Sh/ {here = $$2 == "NAME"} \
    here && $$1 == ".Nm" && FILENAME != "man/" $$2 ".3" {sub("man/", "", FILENAME); print $$2 ":" FILENAME}' man/*.3)

# Symbols for debuggers are left out; `make install STRIP=` leaves them in.
STRIP      ?= $(call tool,strip)
strip_all   = $(if $(STRIP),-s --strip-program=$(STRIP))

# The managed agent's units. The files for systemd-sysusers and systemd-tmpfiles lie where these look if systemd looks there. An
# agent.conf that is there stays.
SYSTEMD_UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSTEMD_UNITS    = hvd.slice hvdagent.service hvdagent.socket
SYSTEMD_BASE     = $(if $(filter %/systemd/system,$(SYSTEMD_UNITDIR)),$(patsubst %/systemd/system,%,$(SYSTEMD_UNITDIR)),$(PREFIX)/lib)
SYSTEMD_LOOKS    = $(filter $(addsuffix /systemd/system,/etc /run /usr/local/lib /usr/lib /lib),$(SYSTEMD_UNITDIR))
SYSCONFDIR      ?= $(if $(STANDARD),/etc,$(PREFIX)/etc)
AGENT_CONF       = $(SYSCONFDIR)/hvd/agent.conf
DAEMON           = $(PREFIX)/bin/hvdagent daemon$(if $(filter-out /etc,$(SYSCONFDIR)), --config $(AGENT_CONF))

# The Python package goes to PYTHON_SITE: by itself to the folder in PREFIX where $(PYTHON) looks for packages, or would. PYTHON_SITE=
# leaves the package out. The command horovodrun is hvdrun; one that is there already and is no link stays.
ifeq ($(origin PYTHON_SITE),undefined)
PYTHON_SITE = $(eval PYTHON_SITE := $(shell $(PYTHON) -c 'import site, sys; \
    here = [path for path in site.getsitepackages() if path.startswith("$(PREFIX)/")]; \
    print(here[0] if here else "$(PREFIX)/lib/python%d.%d/site-packages" % sys.version_info[:2])' 2>/dev/null))$(PYTHON_SITE)
endif
PYTHON_FILES = $(if $(PYTHON_SITE),$(PYTHON_PACKAGE:$(PYTHON_TO)/%=%))
# Of the one module that lies in no package.
PYTHON_CACHE = $(DESTDIR)$(PYTHON_SITE)/__pycache__
PYTHON_DIRS  = $(addprefix $(PYTHON_SITE)/,$(sort $(patsubst %/,%,$(filter-out ./,$(dir $(PYTHON_FILES))))))

SYSTEMD_DIRS = $(SYSTEMD_UNITDIR) $(addprefix $(SYSTEMD_BASE)/,sysusers.d tmpfiles.d) $(SYSCONFDIR)/hvd
INSTALL_DIRS = $(addprefix $(PREFIX)/,bin lib/hvd lib/pkgconfig include share/bash-completion/completions share/zsh/site-functions \
    share/fish/vendor_completions.d \
    $(sort $(foreach m,$(MAN_PAGES),share/man/man$(subst .,,$(suffix $(m)))))) $(if $(filter %/systemd.so,$(MODULES)),$(SYSTEMD_DIRS)) $(PYTHON_DIRS)
# Directories that were not there before, a line each, for uninstall; a staging directory has no such list.
DIRS_MADE    = $(PREFIX)/lib/hvd/directories

# A program that is linked in a prefix of its own finds libhvd there when it runs.
define PC_FILE
prefix=$(PREFIX)
libdir=$${prefix}/lib
includedir=$${prefix}/include

Name: hvd
Description: collective operations for the workers of hvdrun
Version: $(VERSION)
Cflags: -I$${includedir}
Libs: -L$${libdir}$(if $(STANDARD),, -Wl$(comma)-rpath$(comma)$${libdir}) -lhvd
Libs.private: -lm -lpthread
endef

define UNIT_NOTE
note: systemd does not look in $(SYSTEMD_UNITDIR). A managed agent needs, once, as root:
    systemctl link $(addprefix $(SYSTEMD_UNITDIR)/,$(SYSTEMD_UNITS))
    install -D -m 644 $(SYSTEMD_BASE)/sysusers.d/hvd.conf /etc/sysusers.d/hvd.conf
    install -D -m 644 $(SYSTEMD_BASE)/tmpfiles.d/hvd.conf /etc/tmpfiles.d/hvd.conf
    systemd-sysusers; systemd-tmpfiles --create; systemctl enable --now hvdagent.socket
or `make install PREFIX=$(PREFIX) SYSTEMD_UNITDIR=/etc/systemd/system`, then the last line alone.
endef
install: export PC_FILE := $(PC_FILE)
install unit-note: export UNIT_NOTE := $(UNIT_NOTE)

install-dirs:
	$(if $(filter /%,$(PREFIX)),,$(error PREFIX=$(PREFIX) is not a path from the root))
	@made=; for dir in $(addprefix $(DESTDIR),$(INSTALL_DIRS)); do missing=; \
	    while [ ! -d "$$dir" ]; do missing="$$dir $$missing"; dir=$$(dirname "$$dir"); done; \
	    for dir in $$missing; do install -d "$$dir" || exit; made="$$made $$dir"; done; done; \
	    [ -n '$(DESTDIR)' ] || [ -z "$$made" ] || printf '%s\n' $$made >> $(DIRS_MADE)

install-systemd: all install-dirs
	for unit in $(SYSTEMD_UNITS); do \
	    sed 's,@DAEMON@,$(DAEMON),' contrib/systemd/$$unit* > $(DESTDIR)$(SYSTEMD_UNITDIR)/$$unit && \
	    chmod 644 $(DESTDIR)$(SYSTEMD_UNITDIR)/$$unit || exit; done
	install -m 644 contrib/systemd/hvd.sysusers $(DESTDIR)$(SYSTEMD_BASE)/sysusers.d/hvd.conf
	install -m 644 contrib/systemd/hvd.tmpfiles $(DESTDIR)$(SYSTEMD_BASE)/tmpfiles.d/hvd.conf
	[ -e $(DESTDIR)$(AGENT_CONF) ] || install -m 644 contrib/systemd/agent.conf $(DESTDIR)$(AGENT_CONF)

unit-note:
	@printf '%s\n' "$$UNIT_NOTE"

# Does nothing without PYTHON_SITE.
install-python: all install-dirs
	for file in $(PYTHON_FILES); do install -m 644 $(PYTHON_TO)/$$file $(DESTDIR)$(PYTHON_SITE)/$$file || exit; done
	$(if $(PYTHON_FILES),$(if $(STRIP),$(STRIP) $(DESTDIR)$(PYTHON_SITE)/hvdrun/_hvd.abi3.so))
	$(if $(PYTHON_FILES),[ -e $(TO)/bin/horovodrun ] && [ ! -L $(TO)/bin/horovodrun ] || ln -sfn hvdrun $(TO)/bin/horovodrun)

install: all install-dirs $(if $(filter %/systemd.so,$(MODULES)),install-systemd) $(if $(PYTHON_PACKAGE),install-python) ## into PREFIX (/usr/local), below DESTDIR
	install $(strip_all) -m 755 $(BUILD)/hvdrun $(BUILD)/hvdagent $(BUILD)/hvdctl $(TO)/bin
	install $(strip_all) -m 755 $(BUILD)/modules/hvd-engine $(PMIX_SERVER) $(TO)/lib/hvd
	install $(strip_all) -m 644 $(MODULES) $(TO)/lib/hvd
	install $(strip_all) -m 644 $(BUILD)/libhvd.so $(TO)/lib/libhvd.so.$(VERSION)
	ln -sf libhvd.so.$(VERSION) $(TO)/lib/$(SONAME)
	ln -sf $(SONAME) $(TO)/lib/libhvd.so
	install -m 644 $(BUILD)/libhvd.a $(TO)/lib
	$(if $(STRIP),$(STRIP) --strip-debug $(TO)/lib/libhvd.a)
	for p in hvdrun hvdctl; do \
	    $(BUILD)/$$p --bash-completion > $(TO)/share/bash-completion/completions/$$p && \
	    $(BUILD)/$$p --zsh-completion > $(TO)/share/zsh/site-functions/_$$p && \
	    $(BUILD)/$$p --fish-completion > $(TO)/share/fish/vendor_completions.d/$$p.fish || exit; \
	done
	install -m 644 collectives/hvd.h $(TO)/include
	printf '%s\n' "$$PC_FILE" > $(TO)/lib/pkgconfig/hvd.pc
	for m in $(MAN_PAGES); do install -m 644 $$m $(TO)/share/man/man$${m##*.}/ || exit; done
	for m in $(MAN_NAMES); do echo ".so man3/$${m#*:}" > $(TO)/share/man/man3/$${m%:*}.3 || exit; done
	$(if $(DESTDIR),,$(if $(STANDARD),ldconfig 2>/dev/null || echo 'note: run ldconfig if $(PREFIX)/lib is a directory of your linker'))
	$(if $(DESTDIR)$(SYSTEMD_LOOKS),,$(if $(filter %/systemd.so,$(MODULES)),@printf '%s\n' "$$UNIT_NOTE"))

uninstall: ## removes what install put there, and the directories that it made if nothing else is in them
	rm -f $(TO)/bin/hvdrun $(TO)/bin/hvdagent $(TO)/bin/hvdctl $(addprefix $(TO)/lib/hvd/,hvd-engine hvd-pmix $(notdir $(MODULES))) \
	    $(addprefix $(TO)/lib/,libhvd.so.$(VERSION) $(SONAME) libhvd.so libhvd.a pkgconfig/hvd.pc) $(TO)/include/hvd.h \
	    $(foreach p,hvdrun hvdctl,$(addprefix $(TO)/share/,bash-completion/completions/$(p) zsh/site-functions/_$(p) fish/vendor_completions.d/$(p).fish)) \
	    $(foreach m,$(MAN_PAGES),$(TO)/share/man/man$(subst .,,$(suffix $(m)))/$(notdir $(m))) \
	    $(foreach m,$(MAN_NAMES),$(TO)/share/man/man3/$(firstword $(subst :, ,$(m))).3) \
	    $(addprefix $(DESTDIR)$(SYSTEMD_UNITDIR)/,$(SYSTEMD_UNITS)) $(addprefix $(DESTDIR)$(SYSTEMD_BASE)/,sysusers.d/hvd.conf tmpfiles.d/hvd.conf)
	$(if $(PYTHON_FILES),rm -f $(addprefix $(DESTDIR)$(PYTHON_SITE)/,$(PYTHON_FILES)); rm -rf $(patsubst %,$(DESTDIR)%/__pycache__,$(PYTHON_DIRS)); \
	    rm -f $(PYTHON_CACHE)/hvdrun_horovod.*.pyc $(PYTHON_CACHE)/hvdrun_torch.*.pyc; rmdir $(PYTHON_CACHE) 2>/dev/null || :)
	[ ! -L $(TO)/bin/horovodrun ] || rm -f $(TO)/bin/horovodrun
	! cmp -s contrib/systemd/agent.conf $(DESTDIR)$(AGENT_CONF) || rm -f $(DESTDIR)$(AGENT_CONF)
	@made=$$(sort -ru $(DESTDIR)$(DIRS_MADE) 2>/dev/null); rm -f $(DESTDIR)$(DIRS_MADE); \
	    for dir in $$made $(TO)/lib/hvd; do [ ! -d "$$dir" ] || rmdir "$$dir" 2>/dev/null || :; done

.PHONY: install install-dirs install-python install-systemd unit-note uninstall
