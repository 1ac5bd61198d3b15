/* What the tests of kernels share: an image with the tests' own prelude, and runs from one line. */
#pragma once

#include "check.h"
#include "kernel/parts.h"

#include <stdlib.h>
#include <string.h>

/* Generous: what is measured here must also hold on a machine that does other things. */
#define PATIENCE 20

struct kernel_image *kit_image(void); /* the same for all of a program */
struct kernel_manifest *kit_manifest(const struct kernel_grants *grants);
struct kernel_context *kit_context(const struct kernel_manifest *manifest);

/* Runs and waits for timers; nobody settles calls. */
const struct kernel_result *kit_run(struct kernel_context *context, const char *source);
const struct kernel_result *kit_run_source(struct kernel_context *context,
                                           const struct kernel_source *source);
/* For what never ends, or may not. All else needs time enough: a machine that does nothing for a while may call that
 * the thread's time. 0: what the manifest says. */
const struct kernel_result *kit_run_within(struct kernel_context *context, const char *source,
                                           uint32_t cpu_ms);
bool kit_is(struct kernel_text text, const char *wanted);
bool kit_has(struct kernel_text text, const char *part);

/* Runs, and checks that the output is this. */
#define RUN_IS(context, source, wanted)                                                     \
    do {                                                                                    \
        const struct kernel_result *got_ = kit_run(context, source);                        \
        CHECK(got_->end == KERNEL_END_VALUE && kit_is(got_->output, wanted),                \
              "%s is '%.*s' (%s: %.*s)", source, (int)got_->output.size, got_->output.data, \
              kernel_end_name(got_->end), (int)got_->message.size, got_->message.data);     \
    } while (0)

/* Runs, and checks that it throws with this in its message. */
#define RUN_THROWS(context, source, part)                                          \
    do {                                                                           \
        const struct kernel_result *got_ = kit_run(context, source);               \
        CHECK(got_->end == KERNEL_END_ERROR && kit_has(got_->message, part),       \
              "%s ends by %s: '%.*s' '%.*s'", source, kernel_end_name(got_->end),  \
              (int)got_->message.size, got_->message.data, (int)got_->output.size, \
              got_->output.data);                                                  \
    } while (0)
