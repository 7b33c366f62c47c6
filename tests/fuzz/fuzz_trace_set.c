/* Bytes as the only file of a trace, opened by its header alone; what begins with { is metadata for a file of four tensors instead. What is
 * accepted must be consistent: the same as the file read whole, each piece of a tensor tiled by its segments, every element merged once. */
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/check/blocks.h"
#include "harness/check/kernel.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ELEMENTS_MAX = 1 << 20, BUFFER_ELEMENTS = SF_BLOCK_ELEMENTS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A folder of this process, on a file system in memory where there is one. */
static const char *folder(void) {
  static char path[64];
  if (!*path) {
    snprintf(path, sizeof path, "%s/sf_fuzz_trace_XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : P_tmpdir);
    SF_ASSERT(mkdtemp(path) != NULL);
  }
  return path;
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  SF_ASSERT(file >= 0 && write(file, data, size) == (ssize_t)size);
  close(file);
}

/* Four tensors with this text as their metadata. False when it is no plain text. */
static bool write_tensors(const char *path, const uint8_t *text, size_t size) {
  static const float values[24];
  static const int64_t dims[3] = {2, 4, 3};
  static const char *const names[] = {"s0/mb0/fwd/act/m/0", "s0/mb0/step/main_grad/w/0", "s0/mb0/step/scalar/loss/0",
                                      "s1/mb2/recompute/act/m/0"};
  static const int32_t dim_counts[] = {3, 1, 0, 2};
  struct sf_st_writer *writer = NULL;
  struct sf_text meta = {0};
  sf_text_append(&meta, "%.*s", (int)size, (const char *)text);
  SF_ASSERT_EQ(sf_st_writer_create(&writer), SF_OK);
  for (int i = 0; i < 4; i++) SF_ASSERT_EQ(sf_st_writer_add(writer, names[i], SF_F32, dims, dim_counts[i], values), SF_OK);
  const bool plain = sf_st_writer_meta(writer, "shardfuzz", meta.data) == SF_OK;
  if (plain) SF_ASSERT_EQ(sf_st_writer_save(writer, path, NULL), SF_OK);
  sf_st_writer_destroy(writer);
  sf_text_destroy(&meta);
  return plain;
}

/* Each element that a piece says it holds comes up in one segment, once. */
static int64_t count_segments(const struct sf_piece *piece, int64_t sum, int64_t elements) {
  static struct sf_segment segments[BUFFER_ELEMENTS];
  int64_t held = 0, last = -1;
  for (int64_t at = 0; at < elements; at += BUFFER_ELEMENTS) {
    const int64_t end = at + BUFFER_ELEMENTS < elements ? at + BUFFER_ELEMENTS : elements,
                  count = sf_piece_segments(segments, piece, sum, at, end);
    for (int64_t i = 0; i < count; i++) {
      SF_ASSERT_LT(last, segments[i].logical);
      SF_ASSERT_LE(1, segments[i].count);
      SF_ASSERT_LE(0, segments[i].local);
      SF_ASSERT_LE(segments[i].local + segments[i].count, piece->entry->count);
      SF_ASSERT_LE(segments[i].logical + segments[i].count, end);
      last = segments[i].logical + segments[i].count - 1;
      held += segments[i].count;
    }
  }
  return held;
}

struct counting {
  const struct sf_piece *piece;
  int64_t elements, held, sums[64];
  int32_t sum_count;
};

static void count_sum(void *ctx, int64_t sum) {
  struct counting *counting = ctx;
  for (int32_t i = 0; i < counting->sum_count; i++)
    if (counting->sums[i] == sum) return;
  if (counting->sum_count == 64) {
    counting->held = -1;
    return;
  }
  counting->sums[counting->sum_count++] = sum;
  if (counting->held >= 0) counting->held += count_segments(counting->piece, sum, counting->elements);
}

static void check_tensor(const struct sf_trace_set *set, const struct sf_trace_tensor *tensor) {
  struct sf_merger *merger = NULL;
  struct sf_block block;
  char reason[SF_MISFIT_TEXT];
  if (tensor->count > ELEMENTS_MAX || !sf_tensor_fits(reason, tensor, tensor)) return;
  struct counting counting = {.piece = tensor->pieces, .elements = tensor->count};
  sf_piece_visit_sums(tensor->pieces, count_sum, &counting);
  if (counting.held >= 0) SF_ASSERT_EQ(counting.held, tensor->pieces->entry->count);
  SF_ASSERT_EQ(sf_merger_create(&merger), SF_OK);
  SF_ASSERT_EQ(sf_merger_begin(merger, set, tensor, NULL), SF_OK);
  int64_t seen = 0;
  for (bool more = sf_block_first(&block, tensor); more; more = sf_block_next(&block, tensor)) {
    const void *values;
    SF_ASSERT_EQ(block.begin, seen);
    SF_ASSERT_EQ(sf_merger_block(merger, &values, block.begin, block.end, NULL), SF_OK);
    (void)sf_squares(values, block.end - block.begin, sf_merger_dtype(merger));
    seen = block.end;
  }
  SF_ASSERT_EQ(seen, tensor->count);
  const struct sf_merge_report report = sf_merger_report(merger);
  SF_ASSERT_EQ(report.conflict_count, 0);
  SF_ASSERT_EQ(report.gap_count, tensor->count - tensor->pieces->entry->count);
  sf_merger_destroy(merger);
}

/* The header alone and the whole file say the same. */
static void check_same(const struct sf_st_file *opened, const char *path) {
  struct sf_st_file whole;
  SF_ASSERT_EQ(sf_st_read(&whole, path, NULL), SF_OK);
  SF_ASSERT_EQ(whole.entry_count, opened->entry_count);
  for (int32_t i = 0; i < whole.entry_count; i++) {
    SF_ASSERT(strcmp(whole.entries[i].name, opened->entries[i].name) == 0);
    SF_ASSERT_EQ(whole.entries[i].bytes - whole.raw.data, opened->entries[i].offset);
    SF_ASSERT_EQ(whole.entries[i].offset, opened->entries[i].offset);
    SF_ASSERT_EQ(whole.entries[i].count, opened->entries[i].count);
  }
  sf_st_destroy(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[128];
  struct sf_trace_set set;
  struct sf_error error = {SF_OK, ""};
  snprintf(path, sizeof path, "%s/rank-00000.safetensors", folder());
  if (size > 0 && data[0] == '{') {
    if (!write_tensors(path, data, size)) return 0;
  } else {
    write_file(path, data, size);
  }
  const enum sf_status status = sf_trace_set_open(&set, folder(), &error);
  if (status != SF_OK) {
    SF_ASSERT_EQ(status, SF_EINPUT);
    SF_ASSERT(strncmp(error.text, folder(), strlen(folder())) == 0);
  } else {
    check_same(&set.files[0].file, path);
    for (int32_t i = 0; i < set.count; i++) check_tensor(&set, &set.tensors[i]);
    sf_trace_set_close(&set);
  }
  unlink(path);
  return 0;
}

__attribute__((destructor)) static void remove_folder(void) { rmdir(folder()); }
