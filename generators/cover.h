/* Covering campaigns: the first cases of a campaign run every feasible pair of choices (features, enums, layout axes in classes), before
 * random draws take over; and counters that say which share of pairs and triples a set of cases has run.
 *
 * A bin is a range of values of one field, as "tp is 2" or "recompute above 1". What bins there are follows from the table's choices, so
 * that a new choice is covered without a word here. A pair of bins is feasible if a row of the table has both. Fields with few bins are no
 * choice; of the built-in layers sizes without classes (hidden, ffn, vocabulary, sequence, head size), the schedule and the seed have
 * none. */
#ifndef SF_GENERATORS_COVER_H
#define SF_GENERATORS_COVER_H

#include "generators/table.h"

struct sf_cover;
/* Case `index` of the campaign `seed`, in blocks of `layouts` cases: case 0 of a block draws everything, the others draw a layout for the
 * same logical function. cover: NULL, or one made for the same table, seed and layouts, whose rows the first cases follow. relayout: not 0
 * asks for another layout of the same function, which follows no row. SF_EINPUT when no case lies in the table. */
enum sf_status sf_cover_draw(struct sf_case *out, const struct sf_cover *cover, const struct sf_table *table, uint64_t seed,
                             int64_t layouts, int64_t index, uint64_t relayout, struct sf_error *error) SF_MUST_USE;

/* Makes the rows: greedy, one row a case, each row made to meet as many open pairs as it can; what the drawn case then really has counts.
 * A function of its arguments; borrows what the table borrows. SF_EINPUT when no case lies in the table. */
enum sf_status sf_cover_create(struct sf_cover **out, const struct sf_table *table, uint64_t seed, int64_t layouts,
                               struct sf_error *error) SF_MUST_USE;
void sf_cover_destroy(struct sf_cover *cover);       /* takes NULL */
int64_t sf_cover_rows(const struct sf_cover *cover); /* cases after which every feasible pair was drawn */

struct sf_cover_count;
/* Counts which pairs and triples of bins a set of cases has run. Borrows what the table borrows. SF_ENOMEM. */
enum sf_status sf_cover_count_create(struct sf_cover_count **out, const struct sf_table *table) SF_MUST_USE;
void sf_cover_count_destroy(struct sf_cover_count *count); /* takes NULL */
/* c: a valid case; values that are in none of these bins are not counted. */
void sf_cover_count_add(struct sf_cover_count *count, const struct sf_case *c);
/* Calls `pair` with the number of each pair of bins that the case has; numbers lie below sf_cover_count_numbers. */
void sf_cover_count_each(const struct sf_cover_count *count, const struct sf_case *c, void (*pair)(void *ctx, int32_t number), void *ctx);
int32_t sf_cover_count_numbers(const struct sf_cover_count *count);
struct sf_cover_shares {
  int64_t pairs, pairs_run;     /* feasible pairs, and those that some case had */
  int64_t triples, triples_run; /* bins each two of which are a feasible pair */
};
/* The pairs alone, which costs nothing. */
void sf_cover_count_pairs(const struct sf_cover_count *count, int64_t *pairs, int64_t *pairs_run);
/* Walks all triples: for reports. */
struct sf_cover_shares sf_cover_count_shares(const struct sf_cover_count *count);
/* Appends all pairs: a line for each bin, "STATES NAME". NAME is as `missing` has it. STATES has a letter for each bin of the lines before
 * it: 'x' the pair has run, 'o' it has not, '.' no case can have it, or the bins are of one field; "-" in the first line. */
void sf_cover_count_append(const struct sf_cover_count *count, struct sf_text *out);
/* Appends a feasible pair that was not run, as "model.bias=on with layout.tp=3..8"; nothing when there is none. */
void sf_cover_count_missing(const struct sf_cover_count *count, struct sf_text *out);

#endif
