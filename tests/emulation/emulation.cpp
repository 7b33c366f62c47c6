/* Launches on fibers. */
#include "tests/emulation/cuda_runtime.h"

extern "C" {
#include "harness/comm/sim_fiber.h"
}

#include <stdio.h>
#include <stdlib.h>

enum { THREADS_MAX = 1024, STACK_BYTES = 64 << 10 };

sf_emulated_place sf_emulated_now;

/* The section of all __shared__ variables. */
extern unsigned char __start_sf_emulated_shared[], __stop_sf_emulated_shared[];

struct lane {
  struct sf_fiber fiber;
  unsigned thread;
  bool ended;
};

static struct {
  struct lane lanes[THREADS_MAX];
  struct sf_fiber caller;
  struct lane *running; /* NULL: threads run without fibers, as the kernel has no barrier */
  void (*body)(void *argument);
  void *argument;
  uint64_t launches;
} world;

void sf_emulated_end(const char *what) {
  fprintf(stderr, "emulated GPU: %s\n", what);
  abort();
}

static void lane_main(void *argument) {
  struct lane *lane = (struct lane *)argument;
  sf_fiber_entered(&lane->fiber, &world.caller);
  sf_emulated_now.thread.x = lane->thread;
  world.body(world.argument);
  lane->ended = true;
  sf_fiber_switch(&lane->fiber, &world.caller, true);
}

void __syncthreads(void) {
  struct lane *lane = world.running;
  if (lane == NULL) sf_emulated_end("a barrier that another thread of the block did not reach");
  sf_fiber_switch(&lane->fiber, &world.caller, false);
  sf_emulated_now.thread.x = lane->thread;
}

static void resume(struct lane *lane) {
  world.running = lane;
  sf_fiber_switch(&world.caller, &lane->fiber, false);
  world.running = NULL;
}

static void start(struct lane *lane, unsigned thread) {
  if (sf_fiber_map(&lane->fiber, STACK_BYTES) != SF_OK) sf_emulated_end("no memory for a stack");
  sf_fiber_prepare(&lane->fiber, lane_main, lane, thread);
  lane->thread = thread;
  lane->ended = false;
}

/* The i-th of `count` in the order of this launch: forward, backward, or with an odd step. */
static unsigned turn(unsigned i, unsigned count) {
  const uint64_t kind = world.launches % 3;
  if (kind == 0) return i;
  if (kind == 1 || (count & (count - 1)) != 0) return count - 1 - i;
  return (i * 77u + 13u) & (count - 1);
}

/* Threads between two barriers after each other; all must come to the next one, or all to the end. */
static void run_block(unsigned threads) {
  world.caller = {};
  start(&world.lanes[0], turn(0, threads));
  resume(&world.lanes[0]);
  if (world.lanes[0].ended) {
    for (unsigned i = 1; i < threads; i++) {
      sf_emulated_now.thread.x = turn(i, threads);
      world.body(world.argument);
    }
    return;
  }
  for (unsigned i = 1; i < threads; i++) start(&world.lanes[i], turn(i, threads));
  for (unsigned from = 1;; from = 0) {
    unsigned ended = 0;
    for (unsigned i = from; i < threads; i++) resume(&world.lanes[i]);
    for (unsigned i = 0; i < threads; i++) ended += world.lanes[i].ended;
    if (ended == threads) return;
    if (ended > 0) sf_emulated_end("a barrier that not all threads of the block reach");
  }
}

void sf_emulated_run(unsigned blocks, unsigned threads, void (*body)(void *argument), void *argument) {
  const float nan = __uint_as_float(0x7fa5a5a5u);
  if (blocks == 0 || threads == 0 || threads > THREADS_MAX) sf_emulated_end("a launch that no GPU takes");
  world.body = body;
  world.argument = argument;
  sf_emulated_now.blocks.x = blocks;
  sf_emulated_now.threads.x = threads;
  for (unsigned i = 0; i < blocks; i++) {
    for (unsigned char *at = __start_sf_emulated_shared; at + sizeof nan <= __stop_sf_emulated_shared; at += sizeof nan) memcpy(at, &nan, sizeof nan);
    sf_emulated_now.block.x = turn(i, blocks);
    run_block(threads);
  }
  world.launches++;
}
