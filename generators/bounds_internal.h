/* Parts of feasibility that its files share. `at`: the bounds of all places, the first layout's being those of the layout in question. */
#ifndef SF_GENERATORS_BOUNDS_INTERNAL_H
#define SF_GENERATORS_BOUNDS_INTERNAL_H

#include "generators/codec_internal.h"

static inline bool sf_range_has_multiple(struct sf_range range, int64_t of) { return (range.lo + of - 1) / of * of <= range.hi; }

/* --- bounds.c ------------------------------------------------------------------------------------------------------ */

/* One layout, whatever the second one is. */
bool sf_bounds_layout_fits(const struct sf_bounds *bounds);
/* Rules that join fields other than the sizes of axes. */
bool sf_bounds_singles_fit(const struct sf_bounds *bounds);
/* Whether the bounds hold a case without latents. */
bool sf_bounds_may_lack_latents(const struct sf_range *at);
/* Narrows the bounds to multi-latent attention; false when they have none. */
bool sf_bounds_with_latents(struct sf_bounds *bounds);
/* Sizes of the axes, whatever the MLPs are. */
bool sf_bounds_axes_fit(const struct sf_range *at, int64_t max_ranks);
bool sf_bounds_need_fp8(const struct sf_range *at);
/* Sequence parallelism must be on. */
bool sf_bounds_need_sp(const struct sf_range *at);
/* Rows of the embedding. */
struct sf_range sf_bounds_vocab_rows(const struct sf_range *at);
/* Layers that recomputation and fp8 leave possible; whether so many divide over plain stages. */
struct sf_range sf_bounds_layers(const struct sf_range *at);
bool sf_bounds_stages_fit(const struct sf_range *at, int64_t layers, int64_t pp);

/* --- bounds_moe.c -------------------------------------------------------------------------------------------------- */

bool sf_bounds_may_be_dense(const struct sf_range *at);
bool sf_bounds_may_be_moe(const struct sf_bounds *bounds);
/* Whether nothing is asked for that experts do not go with. */
bool sf_bounds_moe_company(const struct sf_range *at);

/* --- bounds_reload.c ----------------------------------------------------------------------------------------------- */

/* Whether some case that reloads lies within the bounds. */
bool sf_bounds_reload_fits(const struct sf_bounds *bounds);

#endif
