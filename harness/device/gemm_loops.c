/* GEMM by plain loops over register tiles: one chain of multiply-adds for each element, over ascending k.
 *
 * C is cut into panels of up to four vectors of columns, those into tiles of up to 8 rows whose sums stay in registers; k is cut into
 * blocks of K_BLOCK, between which the sums rest in C (exactly, being floats), so that a panel of B stays in the cache. A panel of B that
 * is transposed, incomplete or badly strided is first copied to scratch, k rows of whole vectors, zeros past n. */
#include "harness/device/cpu.h"
#include "harness/device/vec.h"

enum { K_BLOCK = 256, PANEL_VECS = 4, TILE_ROWS = 8 };
_Static_assert(K_BLOCK *PANEL_VECS *SF_LANES <= SF_GEMM_PACK_FLOATS, "a packed panel fits into the scratch");

struct panel {
  const float *b;
  int64_t ldb, k;
  int64_t last; /* columns of the last vector, 1..SF_LANES */
  bool start;   /* sums start from zero, not from C */
};

/* One tile: rows x vecs vectors of sums. rows, vecs and trans_a are constants wherever this is inlined. */
SF_VEC_INLINE void tile(float *c, int64_t ldc, const float *a, int64_t lda, bool trans_a, const struct panel *panel, int rows, int vecs) {
  sf_vec sum[TILE_ROWS][PANEL_VECS];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vecs; v++)
      sum[r][v] = panel->start ? sf_vec_all(0.0f) : sf_vec_load(c + r * ldc + v * SF_LANES, v == vecs - 1 ? panel->last : SF_LANES);
  const float *b = panel->b;
  for (int64_t p = 0; p < panel->k; p++, b += panel->ldb) {
    sf_vec b_row[PANEL_VECS];
    for (int v = 0; v < vecs; v++) b_row[v] = sf_vec_load_whole(b + v * SF_LANES);
    for (int r = 0; r < rows; r++) {
      const sf_vec factor = sf_vec_all(trans_a ? a[p * lda + r] : a[r * lda + p]);
      for (int v = 0; v < vecs; v++) sum[r][v] = sf_vec_multiply_add(factor, b_row[v], sum[r][v]);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vecs; v++) sf_vec_store(c + r * ldc + v * SF_LANES, v == vecs - 1 ? panel->last : SF_LANES, sum[r][v]);
}

typedef void tile_function(float *c, int64_t ldc, const float *a, int64_t lda, const struct panel *panel);

#define TILE(rows, vecs)                                                                                                                   \
  static void tile_n_##rows##_##vecs(float *c, int64_t ldc, const float *a, int64_t lda, const struct panel *panel) {                      \
    tile(c, ldc, a, lda, false, panel, rows, vecs);                                                                                        \
  }                                                                                                                                        \
  static void tile_t_##rows##_##vecs(float *c, int64_t ldc, const float *a, int64_t lda, const struct panel *panel) {                      \
    tile(c, ldc, a, lda, true, panel, rows, vecs);                                                                                         \
  }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3) TILE(rows, 4)
TILES(1)
TILES(2) TILES(3) TILES(4) TILES(5) TILES(6) TILES(7) TILES(8)

#define ENTRIES(t, rows)                                                                                                                   \
  { tile_##t##_##rows##_1, tile_##t##_##rows##_2, tile_##t##_##rows##_3, tile_##t##_##rows##_4 }
    static tile_function *const tile_table[2][TILE_ROWS][PANEL_VECS] = {
        {ENTRIES(n, 1), ENTRIES(n, 2), ENTRIES(n, 3), ENTRIES(n, 4), ENTRIES(n, 5), ENTRIES(n, 6), ENTRIES(n, 7), ENTRIES(n, 8)},
        {ENTRIES(t, 1), ENTRIES(t, 2), ENTRIES(t, 3), ENTRIES(t, 4), ENTRIES(t, 5), ENTRIES(t, 6), ENTRIES(t, 7), ENTRIES(t, 8)}};

/* Rows of a tile for which the sums, a row of B and one factor fit into the registers: 32 with AVX-512, else 16. */
#if SF_LANES == 16
static const int tile_rows_max[PANEL_VECS] = {8, 8, 8, 6};
#else
static const int tile_rows_max[PANEL_VECS] = {8, 6, 4, 2};
#endif

static void run_panel(const struct sf_gemm *g, int64_t column, int64_t k_first, int vecs, const struct panel *panel) {
  const int64_t tiles = (g->m + tile_rows_max[vecs - 1] - 1) / tile_rows_max[vecs - 1];
  const int64_t rows = g->m / tiles, longer = g->m % tiles; /* the first `longer` tiles have one row more */
  const float *a = g->a + (g->trans_a ? k_first * g->lda : k_first);
  for (int64_t t = 0, i = 0; t < tiles; t++) {
    const int64_t count = rows + (t < longer);
    tile_table[g->trans_a][count - 1][vecs - 1](g->c + i * g->ldc + column, g->ldc, a + (g->trans_a ? i : i * g->lda), g->lda, panel);
    i += count;
  }
}

/* The lanes of two vectors in turn: those of their first halves, and of their second halves. */
#if SF_LANES == 16
#define FIRST_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define SECOND_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif SF_LANES == 8
#define FIRST_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define SECOND_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#else
#define FIRST_HALVES 0, 4, 1, 5
#define SECOND_HALVES 2, 6, 3, 7
#endif

/* Rows i and i + SF_LANES / 2 interleaved, for all i: log2(SF_LANES) times that is a transposition. */
SF_VEC_INLINE void interleave(sf_vec *rows) {
  sf_vec in[SF_LANES];
  memcpy(in, rows, sizeof in);
  for (int i = 0; i < SF_LANES / 2; i++) {
    rows[2 * i] = __builtin_shufflevector(in[i], in[i + SF_LANES / 2], FIRST_HALVES);
    rows[2 * i + 1] = __builtin_shufflevector(in[i], in[i + SF_LANES / 2], SECOND_HALVES);
  }
}

SF_VEC_INLINE void transpose_block(float *out, int64_t ldo, const float *in, int64_t ldi) {
  sf_vec v[SF_LANES];
  for (int i = 0; i < SF_LANES; i++) v[i] = sf_vec_load_whole(in + i * ldi);
  for (int times = SF_LANES; times > 1; times /= 2) interleave(v);
  for (int i = 0; i < SF_LANES; i++) sf_vec_store_whole(out + i * ldo, v[i]);
}

void sf_gemm_transpose(float *out, int64_t ldo, const float *b, int64_t ldb, int64_t n, int64_t k) {
  const int64_t n_whole = n - n % SF_LANES, k_whole = k - k % SF_LANES;
  for (int64_t j = 0; j < n_whole; j += SF_LANES)
    for (int64_t p = 0; p < k_whole; p += SF_LANES) transpose_block(out + p * ldo + j, ldo, b + j * ldb + p, ldb);
  for (int64_t p = k_whole; p < k; p++)
    for (int64_t j = 0; j < n_whole; j++) out[p * ldo + j] = b[j * ldb + p];
  for (int64_t j = n_whole; j < n; j++)
    for (int64_t p = 0; p < k; p++) out[p * ldo + j] = b[j * ldb + p];
}

static void pack_panel(float *out, const struct sf_gemm *g, int64_t column, int64_t cols, int64_t k_first, int64_t k, int vecs) {
  const int64_t width = (int64_t)vecs * SF_LANES, last = cols - (vecs - 1) * SF_LANES;
  if (g->trans_b) {
    if (cols < width)
      for (int64_t p = 0; p < k; p++) sf_vec_store_whole(out + p * width + width - SF_LANES, sf_vec_all(0.0f));
    sf_gemm_transpose(out, width, g->b + column * g->ldb + k_first, g->ldb, cols, k);
    return;
  }
  const float *b = g->b + k_first * g->ldb + column;
  for (int64_t p = 0; p < k; p++, b += g->ldb, out += width) {
    for (int v = 0; v < vecs - 1; v++) sf_vec_store_whole(out + v * SF_LANES, sf_vec_load_whole(b + v * SF_LANES));
    sf_vec_store_whole(out + width - SF_LANES, sf_vec_load(b + width - SF_LANES, last));
  }
}

void sf_gemm_loops(struct sf_cpu *cpu, const struct sf_gemm *g) {
  const int64_t all_vecs = (g->n + SF_LANES - 1) / SF_LANES, panels = (all_vecs + PANEL_VECS - 1) / PANEL_VECS;
  int64_t column = 0;
  for (int64_t i = 0; i < panels; i++) {
    const int vecs = (int)(all_vecs / panels + (i < all_vecs % panels));
    const int64_t width = (int64_t)vecs * SF_LANES, cols = g->n - column < width ? g->n - column : width;
    for (int64_t k_first = 0; k_first < g->k; k_first += K_BLOCK) {
      const int64_t k = g->k - k_first < K_BLOCK ? g->k - k_first : K_BLOCK;
      struct panel panel = {g->b + k_first * g->ldb + column, g->ldb, k, cols - width + SF_LANES, k_first == 0 && !g->accumulate};
      if (g->trans_b || cols < width || (g->m > 64 && g->ldb > 128)) {
        pack_panel(cpu->pack, g, column, cols, k_first, k, vecs);
        panel.b = cpu->pack;
        panel.ldb = width;
      }
      run_panel(g, column, k_first, vecs, &panel);
    }
    column += cols;
  }
}
