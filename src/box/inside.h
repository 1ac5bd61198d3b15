/* The set-up child: from a fresh clone in new namespaces to the init of a box.
 *
 * Carries out a plan, in an order in which each step still has what it needs and the filter comes
 * last. It ends in init's program; whatever fails is said over the control socket, and the child
 * ends. Nothing of the user's runs here. */
#pragma once

#include "box/plan.h"

_Noreturn void inside_enter(struct plan *plan);
