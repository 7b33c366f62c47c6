/* The ranks in their groups, and what each of them holds of the wrong tensor. */
#include "harness/run/figures/figures.h"
#include "harness/run/plot/svg.h"

#include <stdio.h>
#include <string.h>

enum { BOX_WIDTH = 104, BOX_GAP = 10, THUMB_HEIGHT = 36, ROWS_MAX = 16, COLS_MAX = 8, HEAD = 44, LABEL = 22 };

/* Ranks joined by the groups of the signature's axes: `root` is the lowest of them. */
struct joined {
  int32_t root[SF_EVIDENCE_RANKS];
};

static int32_t root_of(const struct joined *j, int32_t rank) {
  while (j->root[rank] != rank) rank = j->root[rank];
  return rank;
}

/* Whether the axis is one of those behind the '@'. */
static bool names_axis(const char *signature, const char *axis) {
  const char *at = strrchr(signature, '@');
  while (at && *at) {
    const size_t length = strcspn(++at, "+");
    if (strlen(axis) == length && strncmp(at, axis, length) == 0) return true;
    at += length;
  }
  return false;
}

/* Names the axes that join ranks: "tp x dp"; "" where there are none. */
static void join(struct joined *j, char *names, size_t size, const struct sf_evidence *evidence, const char *signature) {
  size_t length = 0;
  *names = '\0';
  for (int32_t rank = 0; rank < evidence->ranks; rank++) j->root[rank] = rank;
  for (int32_t g = 0; g < evidence->group_count; g++) {
    const struct sf_evidence_group *group = &evidence->groups[g];
    if (!names_axis(signature, group->name)) continue;
    if (length < size) length += (size_t)snprintf(names + length, size - length, "%s%s", length ? " x " : "", group->name);
    for (int32_t rank = 0; rank < evidence->ranks; rank++) {
      const int32_t other = group->of_rank[rank];
      if (other < 0 || other >= evidence->ranks) continue;
      const int32_t a = root_of(j, rank), b = root_of(j, other);
      j->root[a > b ? a : b] = a > b ? b : a;
    }
  }
}

static const struct sf_picture_holder *holder_of(const struct sf_picture *picture, int32_t rank) {
  for (int32_t i = 0; picture && i < picture->holder_count; i++)
    if (picture->holders[i].rank == rank) return &picture->holders[i];
  return NULL;
}

/* "tp 0  dp 1": the rank's place in its groups of more than one. */
static void place_text(char *out, size_t size, const struct sf_evidence *evidence, int32_t rank) {
  size_t length = 0;
  *out = '\0';
  for (int32_t g = 0; g < evidence->group_count && length < size; g++) {
    const struct sf_evidence_group *group = &evidence->groups[g];
    int32_t before = 0, all = 0;
    for (int32_t other = 0; other < evidence->ranks; other++) {
      if (group->of_rank[other] != group->of_rank[rank]) continue;
      before += other < rank;
      all++;
    }
    if (all > 1) length += (size_t)snprintf(out + length, size - length, "%s%s %d", length ? " " : "", group->name, before);
  }
}

/* The tensor's outline with what the rank holds of it; summands are hatched. */
static void draw_holding(struct sf_svg *svg, struct sf_svg_box box, const struct sf_picture *picture,
                         const struct sf_picture_holder *holder) {
  int colours[SF_PICTURE_CELLS];
  sf_svg_fill(svg, box, SF_COLOUR_PAPER);
  for (int32_t i = 0; i < picture->rows * picture->cols; i++)
    colours[i] = holder && sf_picture_holds(holder, i) ? (holder->is_summand ? SF_COLOUR_LINE : SF_COLOUR_CALM) : -1;
  sf_svg_cells(svg, box, picture->rows, picture->cols, colours);
  if (holder && holder->is_summand) sf_svg_hatch(svg, box, SF_COLOUR_MARK);
  sf_svg_frame(svg, box, SF_COLOUR_MARK, 1);
}

struct drawing {
  struct sf_svg svg;
  const struct sf_evidence *evidence;
  const struct sf_picture *picture;
  int32_t guilty; /* rank; -1: no one */
};

static void draw_rank(const struct drawing *d, struct sf_svg_box box, int32_t rank) {
  struct sf_svg svg = d->svg;
  char place[64];
  const bool is_guilty = rank == d->guilty;
  sf_svg_fill(&svg, box, SF_COLOUR_PANEL);
  if (is_guilty) sf_svg_frame(&svg, box, SF_COLOUR_BAD, 2);
  sf_svg_print(&svg, (struct sf_svg_label){box.x + 8, box.y + 16, SF_SVG_START, is_guilty ? SF_COLOUR_BAD : SF_COLOUR_INK, 66, true},
               "rank %d", rank);
  if (is_guilty) sf_svg_diamond(&svg, box.x + box.width - 14, box.y + 12, 5, SF_COLOUR_BAD);
  place_text(place, sizeof place, d->evidence, rank);
  sf_svg_text(&svg, (struct sf_svg_label){box.x + 8, box.y + 33, SF_SVG_START, SF_COLOUR_SOFT, BOX_WIDTH - 14, false}, place);
  if (!d->picture) return;
  const struct sf_svg_box thumb = {box.x + 8, box.y + HEAD - 2, BOX_WIDTH - 16, THUMB_HEIGHT};
  draw_holding(&svg, thumb, d->picture, holder_of(d->picture, rank));
}

/* A frame around the ranks of one group, and its boxes. Returns how many ranks it has. */
static int32_t draw_group(const struct drawing *d, const struct joined *j, int32_t root, double y, double height, bool has_frame) {
  struct sf_svg svg = d->svg;
  int32_t shown = 0, all = 0;
  for (int32_t rank = root; rank < d->evidence->ranks; rank++) {
    if (root_of(j, rank) != root || all++ >= COLS_MAX) continue;
    draw_rank(d, (struct sf_svg_box){6 + (BOX_WIDTH + BOX_GAP) * (double)shown++, y, BOX_WIDTH, height}, rank);
  }
  const double width = (BOX_WIDTH + BOX_GAP) * (double)shown - BOX_GAP;
  if (has_frame) sf_svg_frame(&svg, (struct sf_svg_box){2, y - 4, width + 8, height + 8}, SF_COLOUR_MARK, 1);
  if (all > shown)
    sf_svg_print(&svg, (struct sf_svg_label){12 + width, y + 20, SF_SVG_START, SF_COLOUR_SOFT, 120, false}, "and %d more", all - shown);
  return all;
}

static int32_t count_groups(const struct joined *j, int32_t ranks, int32_t *largest) {
  int32_t count = 0, sizes[SF_EVIDENCE_RANKS] = {0};
  *largest = 0;
  for (int32_t rank = 0; rank < ranks; rank++) {
    count += j->root[rank] == rank;
    const int32_t size = ++sizes[root_of(j, rank)];
    *largest = size > *largest ? size : *largest;
  }
  return count;
}

void sf_figure_ranks(struct sf_text *out, const struct sf_evidence *evidence, const char *signature, const struct sf_picture *picture,
                     int32_t rank) {
  struct joined j;
  char names[96];
  int32_t largest, drawn = 0;
  if (evidence->ranks < 2) return;
  join(&j, names, sizeof names, evidence, signature);
  if (!*names) /* one line of all */
    for (int32_t r = 0; r < evidence->ranks; r++) j.root[r] = 0;
  const int32_t groups = count_groups(&j, evidence->ranks, &largest);
  const int32_t rows = groups < ROWS_MAX ? groups : ROWS_MAX, cols = largest < COLS_MAX ? largest : COLS_MAX;
  const double height = picture ? HEAD + THUMB_HEIGHT + 6 : HEAD, step = height + 18;
  struct drawing d = {.evidence = evidence, .picture = picture, .guilty = rank};
  char group_note[160] = "";
  if (*names) snprintf(group_note, sizeof group_note, "A frame is a group of %s, over which the fault runs. ", names);
  sf_figure_begin(out, "The ranks", "%s%s%s", group_note,
                  picture ? "Blue is the part of the wrong tensor that a rank holds, hatched a summand of it." : "",
                  rank >= 0 ? " The marked rank is off by most." : "");
  sf_svg_begin(&d.svg, out, 10 + (BOX_WIDTH + BOX_GAP) * (double)cols + (largest > COLS_MAX ? 110 : 0),
               step * rows + (groups > rows ? LABEL : 0), "ranks and what they hold");
  for (int32_t root = 0; root < evidence->ranks && drawn < rows; root++)
    if (j.root[root] == root) draw_group(&d, &j, root, 6 + step * drawn++, height, *names != '\0');
  if (groups > rows)
    sf_svg_print(&d.svg, (struct sf_svg_label){6, step * rows + 14, SF_SVG_START, SF_COLOUR_SOFT, 300, false}, "and %d more groups",
                 groups - rows);
  sf_svg_end(&d.svg);
  sf_figure_end(out);
}
