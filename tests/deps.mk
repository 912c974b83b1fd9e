# What the machine must have. Plain `make` only names what is missing; `make demo` and `make check` install it when they
# may. Compiler flags come from pkg-config when make reads its files, so whoever installs starts make again afterwards.

check-deps:
	@PKG_CONFIG=$(PKG_CONFIG) sh tests/deps.sh check build

deps: ## installs what building and testing need (root or sudo)
	@PKG_CONFIG=$(PKG_CONFIG) sh tests/deps.sh install build options test

# Installs what the groups lack; then a fresh make sees it: @$(MAKE) $(quietly) TARGET.
provide  = @PKG_CONFIG=$(PKG_CONFIG) sh tests/deps.sh install
quietly  = --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

.PHONY: check-deps deps
