# PGXS: what users and packagers build with. `make && sudo make install`; `make check` and `make demo` for everything else.
EXTENSION = outbox
MODULE_big = outbox
DATA = $(wildcard sql/outbox--*.sql)
PGFILEDESC = "outbox - transactional outbox to Kafka and webhooks"

SOURCES = $(sort $(wildcard src/*.cpp src/*/*.cpp src/*/*/*.cpp))
OBJS = $(SOURCES:.cpp=.o)

REGRESS = $(basename $(notdir $(filter-out sql/outbox--%,$(wildcard sql/*.sql))))
REGRESS_OPTS = --inputdir=. --outputdir=.
ISOLATION = $(basename $(notdir $(wildcard tests/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=tests/isolation --outputdir=tests/isolation

PG_CONFIG ?= pg_config
PKG_CONFIG ?= pkg-config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

RDKAFKA_MIN = 2.0.2
CURL_MIN = 7.88.1
OUTBOX_VERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" outbox.control)
PG_CPPFLAGS = -Isrc -DOUTBOX_VERSION='"$(OUTBOX_VERSION)"' $(shell $(PKG_CONFIG) --cflags rdkafka libcurl libcrypto 2>/dev/null)
SHLIB_LINK = $(shell $(PKG_CONFIG) --libs rdkafka libcurl libcrypto 2>/dev/null) -lstdc++ -lpthread -Wl,--version-script=$(CURDIR)/src/outbox.map
CXX_DIALECT = -std=c++20 -fvisibility=hidden -Wno-register
PG_CXXFLAGS = $(CXX_DIALECT) -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
ifeq ($(OUTBOX_FAULTS),1)
PG_CPPFLAGS += -DOUTBOX_FAULTS
endif

.DEFAULT_GOAL := all
ifneq ($(filter check check-long demo bench,$(MAKECMDGOALS)),)
# These install what is missing and build for themselves. PGXS, which has a `check` of its own, stays out of it.
.PHONY: check check-long demo bench
check:
	tests/run check
check-long:
	tests/run long
demo:
	tests/demo/run
bench:
	bench/run
else
ifeq ($(PGXS),)
all install installcheck:
	@echo "outbox needs PostgreSQL 15 or later with its server headers: no pg_config found (Debian: postgresql-server-dev-all)" >&2; exit 1
else
ifneq ($(shell $(PKG_CONFIG) --atleast-version=$(RDKAFKA_MIN) rdkafka 2>/dev/null && echo yes),yes)
$(error outbox needs librdkafka $(RDKAFKA_MIN) or later with its headers (Debian: librdkafka-dev))
endif
ifneq ($(shell $(PKG_CONFIG) --atleast-version=$(CURL_MIN) libcurl 2>/dev/null && echo yes),yes)
$(error outbox needs libcurl $(CURL_MIN) or later with its headers (Debian: libcurl4-openssl-dev))
endif
ifneq ($(shell $(PKG_CONFIG) --exists libcrypto 2>/dev/null && echo yes),yes)
$(error outbox needs OpenSSL with its headers (Debian: libssl-dev))
endif
include $(PGXS)
# clang 14 defaults to C++14, and a server header of PostgreSQL 15 says `register`.
COMPILE.cxx.bc += $(CXX_DIALECT)
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.hpp src/*/*.hpp src/*/*/*.hpp src/*/*.h)
$(shlib): src/outbox.map
endif
endif
