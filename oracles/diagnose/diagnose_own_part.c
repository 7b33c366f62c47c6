/* Suppositions about what a rank sees: sums over its own tokens or columns alone, positions that are counted on the rank, and keys and
 * values of another group of heads. */
#include "oracles/diagnose/diagnose_supposing.h"

#include <stdio.h>
#include <string.h>

static bool take_part(struct sf_parts *parts, const struct sf_dim_map *dim, int32_t part) {
  int32_t local = 0;
  for (int32_t i = 0; i < dim->count; i++)
    for (int64_t at = dim->runs[i].start; at < dim->runs[i].start + dim->runs[i].len; at++) {
      parts->of[at] = part;
      parts->local[at] = local++;
    }
  return local > 0;
}

/* False: these axes do not cut the dimension, or there is no memory. */
static bool cut(struct sf_parts *parts, struct sf_related_list *list, enum sf_cut how, int64_t size) {
  const struct sf_case *c = &list->of->c;
  const int32_t tp = parts->by_tp ? (int32_t)c->layout.tp : 1, cp = parts->by_cp ? (int32_t)c->layout.cp : 1;
  parts->count = tp * cp;
  if (tp == 1 && parts->by_tp) return false;
  if (cp == 1 && parts->by_cp) return false;
  parts->of = sf_related_alloc(list, (size_t)size * sizeof *parts->of);
  parts->local = sf_related_alloc(list, (size_t)size * sizeof *parts->local);
  if (parts->of == NULL || parts->local == NULL) return false;
  for (int32_t j = 0; j < cp; j++)
    for (int32_t i = 0; i < tp; i++) {
      const struct sf_dim_map dim = sf_canonical_dim(c, how, size, i, j);
      if (!take_part(parts, &dim, i + tp * j)) return false;
    }
  return true;
}

int32_t sf_parts_of_tokens(struct sf_parts ways[SF_WAYS_MAX], struct sf_related_list *list) {
  const struct sf_case *c = &list->of->c;
  const int64_t seq = c->model.seq;
  int32_t count = 0;
  const struct sf_parts by_cp = {.axes = "cp", .by_cp = true}, by_tp = {.axes = "tp", .by_tp = true},
                        by_both = {.axes = "tp x cp", .by_tp = true, .by_cp = true};
  ways[count] = by_cp;
  count += cut(&ways[count], list, SF_CUT_TOKENS, seq);
  if (!c->layout.sp || seq % (c->layout.tp * c->layout.cp) != 0) return count;
  ways[count] = c->layout.cp > 1 ? by_both : by_tp;
  count += cut(&ways[count], list, SF_CUT_SEQUENCE, seq);
  return count;
}

/* --- sums over a part ---------------------------------------------------------------------------------------------- */

#define WITHIN(name) (1u << SF_WITHIN_##name)

/* text: %s stands for the axes. of_part: the tensor has room for one rank's number, so that each rank has its own. */
struct mistake {
  uint32_t within;
  bool of_part;
  enum sf_diagnosis_class cls;
  const char *cause, *text;
};

static const struct mistake of_tokens[] = {
    {WITHIN(CAPACITY) | WITHIN(LOAD), false, SF_DIAGNOSIS_MISSING_REDUCTION, "capacity of experts",
     "each rank of %s gave experts room by its own tokens, and counted it by itself"},
    {WITHIN(CAPACITY), false, SF_DIAGNOSIS_MISSING_REDUCTION, "capacity of experts",
     "experts had room by the number of tokens of one rank of %s"},
    {WITHIN(LOAD), false, SF_DIAGNOSIS_MISSING_REDUCTION, "load of experts", "each rank of %s counted by itself how full the experts are"},
    {WITHIN(CHOICES), true, SF_DIAGNOSIS_MISSING_REDUCTION, "choices of experts",
     "each rank of %s counted the choices of experts among its own tokens"},
    {WITHIN(SCORES), true, SF_DIAGNOSIS_MISSING_REDUCTION, "scores of experts", "each rank of %s added up scores of its own tokens"},
    {WITHIN(TOKENS), true, SF_DIAGNOSIS_MISSING_REDUCTION, "tokens of the router's losses",
     "each rank of %s divided the router's losses by the number of its own tokens"},
    {WITHIN(CHOICES) | WITHIN(TOKENS), true, SF_DIAGNOSIS_MISSING_REDUCTION, "choices of experts",
     "each rank of %s counted tokens and the choices of experts among its own tokens"},
    {WITHIN(CHOICES) | WITHIN(SCORES), true, SF_DIAGNOSIS_MISSING_REDUCTION, "choices and scores of experts",
     "each rank of %s took choices and scores of experts from its own tokens"},
    {WITHIN(SCORES) | WITHIN(TOKENS), true, SF_DIAGNOSIS_MISSING_REDUCTION, "scores of experts",
     "each rank of %s took scores and the number of tokens from its own tokens"},
    {WITHIN(CHOICES) | WITHIN(SCORES) | WITHIN(TOKENS), true, SF_DIAGNOSIS_MISSING_REDUCTION, "router's losses of a rank",
     "each rank of %s had losses of its router from its own tokens, and they were added up"},
    {WITHIN(CHOICES) | WITHIN(SCORES) | WITHIN(TOKENS) | WITHIN(SHARE), true, SF_DIAGNOSIS_MISSING_REDUCTION, "router's losses of a rank",
     "each rank of %s had losses of its router from its own tokens, and their mean was taken"},
};

static const struct mistake of_columns[] = {
    {WITHIN(EXPS), true, SF_DIAGNOSIS_MISSING_REDUCTION, "sum of exponentials",
     "each rank of %s added up the exponentials of its own columns of the vocabulary"},
    {WITHIN(MAX), false, SF_DIAGNOSIS_MISSING_REDUCTION, "largest logit",
     "each rank of %s took logits relative to the largest one of its own columns"},
    {WITHIN(LABEL), true, SF_DIAGNOSIS_MISSING_REDUCTION, "logit of the label",
     "the label's logit were 0 on the ranks of %s that do not have its column"},
    {WITHIN(EXPS) | WITHIN(LABEL), true, SF_DIAGNOSIS_MISSING_REDUCTION, "loss of a rank's columns",
     "each rank of %s had the loss of its own columns of the vocabulary"},
    {WITHIN(SMOOTHED), true, SF_DIAGNOSIS_MISSING_REDUCTION, "smoothed labels",
     "each rank of %s smoothed labels over its own columns of the vocabulary"},
};

enum { FIRST_VARIANT = 1000 };

int32_t sf_part_of_rank(const struct sf_parts *parts, const struct sf_related_list *list, int32_t rank) {
  const struct sf_place_of_rank *place = &list->of->places[rank];
  const int32_t tp = parts->by_tp ? place->tp : 0, cp = parts->by_cp ? place->cp : 0;
  return tp + (parts->by_tp ? (int32_t)list->of->c.layout.tp : 1) * cp;
}

/* Each rank has a tensor of its own: the number that its part gives. */
static void suppose_of_each(const struct sf_supposing *s, struct sf_supposed supposed, const struct sf_parts *parts,
                            struct sf_wording *wording) {
  for (supposed.set = 0; supposed.set < parts->count; supposed.set++)
    for (wording->rank = 0; wording->rank < s->list->collector->world; wording->rank++)
      if (sf_part_of_rank(parts, s->list, wording->rank) == supposed.set) sf_suppose(s, NULL, &supposed, wording);
}

static void suppose_mistakes(const struct sf_supposing *s, const struct mistake *mistakes, size_t count, const struct sf_parts *parts,
                             int32_t first_variant) {
  const struct sf_module *module = &s->list->collector->catalog->modules[s->slot->expected->spec.module];
  const bool is_of_part = s->slot->expected->id.kind == SF_KIND_ACT && (module->cls == SF_MODULE_AUX_LOSS || module->cls == SF_MODULE_LOSS);
  for (size_t i = 0; i < count; i++) {
    const struct sf_supposed supposed = {.within = mistakes[i].within, .set_of = parts->of, .sets = parts->count};
    struct sf_wording wording = {.cls = mistakes[i].cls, .cause = mistakes[i].cause};
    const bool of_each = is_of_part && mistakes[i].of_part;
    const int length = snprintf(wording.name, sizeof wording.name, "%s", of_each ? "the values are as if " : "");
    snprintf(wording.name + length, sizeof wording.name - (size_t)length, mistakes[i].text, parts->axes);
    if (of_each) wording.variant = first_variant + (int32_t)i;
    if (of_each)
      suppose_of_each(s, supposed, parts, &wording);
    else
      sf_suppose(s, NULL, &supposed, &wording);
  }
}

/* Attention in which the blocks of keys of some ranks are left out, or are all that there is. */
static void suppose_blocks(const struct sf_supposing *s, const struct sf_parts *parts) {
  static const struct {
    uint32_t within;
    const char *cause, *without, *alone; /* %s: "the rank 1 behind"; NULL: not tried, since a query sees its own key */
  } kinds[] = {
      {WITHIN(KEYS), "keys of other ranks", "queries did not see the keys of %s", NULL},
      {WITHIN(QUERIES), "queries of other ranks", "keys and values lacked the gradients of the queries of %s",
       "keys and values had the gradients of the queries of %s alone"},
      {WITHIN(SLOPES), "keys of other ranks", "queries lacked the gradients of the keys of %s",
       "queries had the gradients of the keys of %s alone"},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    for (int32_t offset = 0; offset < parts->count; offset++)
      for (int without = 0; without < 2; without++) {
        const struct sf_supposed supposed = {
            .within = kinds[i].within, .set_of = parts->of, .sets = parts->count, .offset = offset, .without = without};
        struct sf_wording wording = {.cls = SF_DIAGNOSIS_MISSING_TERM, .cause = kinds[i].cause};
        const char *format = without ? kinds[i].without : kinds[i].alone;
        const bool of_queries = kinds[i].within == WITHIN(QUERIES), shows_own = kinds[i].within == WITHIN(KEYS) && offset == 0;
        char ranks[48];
        if (shows_own && without) continue;
        if (shows_own) format = "queries saw the keys of %s alone";
        if (format == NULL) continue;
        if (offset == 0)
          snprintf(ranks, sizeof ranks, "their own rank of %s", parts->axes);
        else
          snprintf(ranks, sizeof ranks, "the rank of %s %d %s theirs", parts->axes, offset, of_queries ? "before" : "behind");
        snprintf(wording.name, sizeof wording.name, format, ranks);
        sf_suppose(s, NULL, &supposed, &wording);
      }
}

void sf_suppose_own_part(const struct sf_supposing *s) {
  const struct sf_case *c = &s->list->of->c;
  struct sf_parts ways[SF_WAYS_MAX], columns = {.axes = "tp", .by_tp = true};
  const int32_t count = sf_parts_of_tokens(ways, s->list);
  for (int32_t i = 0; i < count; i++) suppose_blocks(s, &ways[i]);
  for (int32_t i = 0; i < count; i++)
    suppose_mistakes(s, of_tokens, sizeof of_tokens / sizeof *of_tokens, &ways[i], FIRST_VARIANT * (i + 1));
  if (cut(&columns, s->list, SF_CUT_EVEN, c->model.vocab_padded))
    suppose_mistakes(s, of_columns, sizeof of_columns / sizeof *of_columns, &columns, FIRST_VARIANT * (SF_WAYS_MAX + 1));
}

/* --- data in another order ---------------------------------------------------------------------------------------- */

static void suppose_order(const struct sf_supposing *s, const int32_t *order, enum sf_diagnosis_class cls, const char *how,
                          const char *axes) {
  static const struct {
    uint32_t parts;
    const char *name;
  } data[] = {{1 << SF_DATA_MASK, "the loss mask"},
              {1 << SF_DATA_LABELS, "the labels"},
              {1 << SF_DATA_LABELS | 1 << SF_DATA_MASK, "labels and loss mask"},
              {1 << SF_DATA_TOKENS, "the tokens"},
              {1 << SF_DATA_DROPOUT, "the dropout mask"}};
  for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
    const struct sf_supposed supposed = {.parts = data[i].parts, .order = order};
    struct sf_wording wording = {.cls = cls, .cause = "order of data"};
    const int length = snprintf(wording.name, sizeof wording.name, "%s ", data[i].name);
    snprintf(wording.name + length, sizeof wording.name - (size_t)length, how, axes);
    sf_suppose(s, NULL, &supposed, &wording);
  }
}

void sf_suppose_data_order(const struct sf_supposing *s) {
  const int32_t seq = (int32_t)s->c->model.seq;
  int32_t *order = sf_related_alloc(s->list, (size_t)seq * sizeof *order);
  struct sf_parts ways[SF_WAYS_MAX];
  if (order == NULL) return;
  const int32_t count = sf_parts_of_tokens(ways, s->list);
  for (int32_t way = 0; way < count; way++) {
    const int32_t each = seq / ways[way].count;
    for (int32_t i = 0; i < seq; i++) order[i] = ways[way].of[i] * each + ways[way].local[i];
    suppose_order(s, order, SF_DIAGNOSIS_PERMUTED, "came cut for %s as if its ranks had consecutive positions", ways[way].axes);
    for (int32_t i = 0; i < seq; i++) order[ways[way].of[i] * each + ways[way].local[i]] = i;
    suppose_order(s, order, SF_DIAGNOSIS_PERMUTED, "came in the order of the ranks of %s", ways[way].axes);
    suppose_order(s, ways[way].local, SF_DIAGNOSIS_NEIGHBOUR, "came by positions counted on each rank of %s from 0", ways[way].axes);
    for (int32_t i = 0; i < seq; i++)
      for (int32_t j = 0; j < seq; j++)
        if (ways[way].of[j] == 0 && ways[way].local[j] == ways[way].local[i]) order[i] = j;
    suppose_order(s, order, SF_DIAGNOSIS_NEIGHBOUR, "came from the first rank of %s", ways[way].axes);
  }
  for (int32_t i = 0; i < seq; i++) order[i] = (i + 1) % seq;
  suppose_order(s, order, SF_DIAGNOSIS_SHIFTED, "came one position ahead%s", "");
  for (int32_t i = 0; i < seq; i++) order[i] = (i + seq - 1) % seq;
  suppose_order(s, order, SF_DIAGNOSIS_SHIFTED, "came one position behind%s", "");
}

/* --- positions ---------------------------------------------------------------------------------------------------- */

/* Positions of the tensor's microbatch, [microbatch_size x seq]. */
struct positions {
  int32_t *documents; /* the first position of each one's document; NULL without documents */
  int32_t *taken;
};

static int64_t count_of(const struct sf_case *c) { return c->train.microbatch_size * c->model.seq; }

/* from: counted in the sequence, as the mistake does; a position in a document counts from the document's first. */
static void take_from(struct positions *p, const struct sf_case *c, const int32_t *from) {
  const int64_t seq = c->model.seq;
  for (int64_t i = 0; i < count_of(c); i++) {
    const int64_t position = from[i % seq] - (p->documents != NULL ? p->documents[i] : 0);
    p->taken[i] = (int32_t)(position < 0 ? position + seq : position);
  }
}

static void suppose_taken(const struct sf_supposing *s, const struct positions *p, const char *format, const char *axes) {
  const struct sf_supposed supposed = {.positions = p->taken};
  struct sf_wording wording = {.cls = SF_DIAGNOSIS_OTHER_FORMULA, .cause = "positions"};
  snprintf(wording.name, sizeof wording.name, format, axes);
  sf_suppose(s, NULL, &supposed, &wording);
}

static void suppose_on_rank(const struct sf_supposing *s, struct positions *p, const struct sf_parts *parts) {
  const int64_t seq = s->c->model.seq;
  int32_t *next_to = sf_related_alloc(s->list, (size_t)seq * sizeof *next_to);
  if (next_to == NULL) return;
  take_from(p, s->c, parts->local);
  suppose_taken(s, p, "positions were counted on each rank of %s from 0", parts->axes);
  for (int64_t i = 0; i < seq; i++) next_to[i] = (int32_t)(parts->of[i] * (seq / parts->count)) + parts->local[i];
  take_from(p, s->c, next_to);
  suppose_taken(s, p, "each rank of %s had consecutive positions", parts->axes);
}

void sf_suppose_positions(const struct sf_supposing *s) {
  const struct sf_case *c = s->c;
  const struct sf_trace_id id = s->slot->expected->id;
  const int64_t seq = c->model.seq, b = c->train.microbatch_size;
  struct sf_parts ways[SF_WAYS_MAX];
  struct positions p = {.taken = sf_related_alloc(s->list, (size_t)count_of(c) * sizeof *p.taken)};
  if (p.taken == NULL) return;
  if (c->data.documents > 1) {
    p.documents = sf_related_alloc(s->list, (size_t)count_of(c) * sizeof *p.documents);
    if (p.documents == NULL) return;
    sf_data_documents(p.documents, c, id.step, id.microbatch);
  }
  const int32_t count = sf_parts_of_tokens(ways, s->list);
  for (int32_t i = 0; i < count; i++) suppose_on_rank(s, &p, &ways[i]);
  if (p.documents != NULL) {
    for (int64_t i = 0; i < b * seq; i++) p.taken[i] = (int32_t)(i % seq);
    suppose_taken(s, &p, "positions were counted through all documents of a sequence%s", "");
  }
  for (int64_t i = 0; i < b * seq && b > 1; i++) p.taken[i] = (int32_t)((i % seq * b + i / seq) % seq);
  if (b > 1) suppose_taken(s, &p, "tokens were counted sequence by sequence, where they lie position by position%s", "");
}

/* --- heads of a rank ---------------------------------------------------------------------------------------------- */

void sf_suppose_groups(const struct sf_supposing *s) {
  static const struct {
    enum sf_slip slip;
    const char *text;
  } slips[] = {
      {SF_SLIP_GROUPS_BY_TURN, "query heads of a rank took its heads of keys and values by turns, and not group by group"},
      {SF_SLIP_FIRST_GROUP, "all query heads of a rank took its first head of keys and values"},
  };
  const int64_t tp = s->list->of->c.layout.tp;
  if (tp == 1 || s->c->model.kv_heads % tp != 0) return;
  for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
    const struct sf_supposed supposed = {.slip = slips[i].slip, .head_parts = (int32_t)tp};
    struct sf_wording wording = {.cls = SF_DIAGNOSIS_OTHER_FORMULA, .cause = "heads of keys"};
    snprintf(wording.name, sizeof wording.name, "%s", slips[i].text);
    sf_suppose(s, NULL, &supposed, &wording);
  }
}
