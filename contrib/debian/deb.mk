# Debian packages. They are those of the release of Debian that runs make.

deb: ## Debian packages, in $(BUILD)/deb
	$(provide) build options deb
	@contrib/debian/make.sh $(BUILD) $(VERSION)

check-deb: deb ## the packages of make deb: lintian, a bare root of Debian, an upgrade under systemd while a job runs; CASE=word for some
	@$(MAKE) $(quietly) $(CONTAIN)
	@$(TESTED_BY) tests/run.sh deb

.PHONY: deb check-deb
