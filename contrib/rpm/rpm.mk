# RPM packages, in the layout of Fedora and RHEL.

rpm: ## RPM packages, in $(BUILD)/rpm
	$(provide) build options rpm
	@contrib/rpm/make.sh $(BUILD) $(VERSION)

check-rpm: rpm ## the packages of make rpm: contents, dependencies, scriptlets, a root in which they are installed, upgraded and removed
	@$(MAKE) $(quietly) $(CONTAIN)
	@$(TESTED_BY) tests/run.sh rpm

.PHONY: rpm check-rpm
