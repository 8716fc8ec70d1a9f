/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The policy's functions with external linkage. */
#define POLICY
#include "activity.h"
#include "pack.h"
