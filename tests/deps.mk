check-deps:
.PHONY: check-deps
