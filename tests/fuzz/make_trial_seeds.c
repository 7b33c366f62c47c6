/* Writes seeds for fuzz_trial: the bytes of drawn cases. Run it again when the codec draws in another order.
 *   make_trial_seeds corpus/seeds/fuzz_trial COUNT */
#include "harness/base/bytes.h"
#include "tests/fuzz/trial_space.h"

int main(int argc, char **argv) {
  static struct sf_space space;
  static struct sf_draw draw;
  struct sf_case c;
  struct sf_error error;
  if (argc != 3) {
    fprintf(stderr, "usage: make_trial_seeds FOLDER COUNT\n");
    return 2;
  }
  trial_space_create(&space);
  for (int i = 0; i < atoi(argv[2]); i++) {
    unsigned char bytes[SF_STREAM_BYTES_MAX];
    char path[1024];
    sf_draw_from_pcg(&draw, 1, (uint64_t)i);
    enum sf_status status = sf_codec_decode(&c, &draw, &space, &error);
    snprintf(path, sizeof path, "%s/drawn-%02d", argv[1], i);
    const size_t size = sf_stream_to_bytes(bytes, &draw.record);
    if (status == SF_OK) status = sf_bytes_write_file(path, bytes, size, &error);
    if (status != SF_OK) {
      fprintf(stderr, "%s\n", error.text);
      return 3;
    }
  }
  return 0;
}
