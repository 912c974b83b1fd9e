# What is published of a version.

release: ## source, packages, wheels, sums and bill of materials of this commit, built twice and compared; KEY=NAME signs the sums
	$(provide) build options deb rpm wheel
	@contrib/release/make.sh $(BUILD) $(VERSION)

check-release: ## a release of this tree in a clone: the same twice, verified, and refused where it must be
	$(provide) build options deb rpm wheel release
	@$(MAKE) $(quietly) $(CONTAIN)
	@$(TESTED_BY) tests/run.sh release

.PHONY: release check-release
