#include "harness/run/gate/gate_base.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

static char program[] = "/tmp/test_run_gate_base_XXXXXX";
static volatile sig_atomic_t stop;
static void on_alarm(int number) { stop = number; }

/* The base is this script. Its children inherit the pipe, whose end tells that all of them are gone. */
static enum sf_status ask(bool *has, char note[SF_GATE_NOTE_TEXT], const char *script, double seconds) {
  const struct sf_gate_base base = {.program = program, .seconds = seconds, .stop = &stop};
  int held[2];
  char byte;
  FILE *file = fopen(program, "we");
  assert_non_null(file);
  fprintf(file, "#!/bin/sh\n%s\n", script);
  fclose(file);
  assert_int_equal(pipe(held), 0);
  fcntl(held[0], F_SETFD, FD_CLOEXEC);
  const enum sf_status status = sf_gate_base_has(has, note, &base, "case.json", "tolerance/act/mlp@tp");
  close(held[1]);
  fcntl(held[0], F_SETFL, O_NONBLOCK);
  assert_int_equal(read(held[0], &byte, 1), 0);
  close(held[0]);
  return status;
}

static void test_gate_base_with_answer_compares_the_last_line(void **state) {
  bool has = false;
  char note[SF_GATE_NOTE_TEXT];
  (void)state;
  stop = 0;
  assert_int_equal(ask(&has, note, "echo first; echo '{\"signature\": \"tolerance/act/mlp@tp\"}'; exit 1", 60), SF_OK);
  assert_true(has);
  assert_string_equal(note, "");
  assert_int_equal(ask(&has, note, "echo '{\"signature\": \"tolerance/act/mlp@dp\"}'; exit 1", 60), SF_OK);
  assert_false(has);
  assert_string_equal(note, "");
  assert_int_equal(ask(&has, note, "exit 3", 60), SF_OK);
  assert_false(has);
  assert_string_equal(note, "the base could not judge the case: it ended with exit code 3");
}

static void test_gate_base_that_leaves_children_is_not_waited_for(void **state) {
  bool has = false;
  char note[SF_GATE_NOTE_TEXT];
  (void)state;
  stop = 0;
  assert_int_equal(ask(&has, note, "sleep 1000 & echo '{\"signature\": \"tolerance/act/mlp@tp\"}'; exit 1", 60), SF_OK);
  assert_true(has);
}

/* Deaf to SIGTERM, and so is its child in a session of its own. */
static const char deaf[] = "trap '' TERM\nsetsid sleep 1000 &\nsleep 1000";

static void test_gate_base_without_answer_is_ended_and_told(void **state) {
  bool has = true;
  char note[SF_GATE_NOTE_TEXT];
  (void)state;
  stop = 0;
  assert_int_equal(ask(&has, note, deaf, 0.3), SF_OK);
  assert_false(has);
  assert_string_equal(note, "the base could not judge the case: it did not answer within 0 s and was ended");
}

static void test_gate_base_stopped_ends_it(void **state) {
  bool has = true;
  char note[SF_GATE_NOTE_TEXT];
  (void)state;
  const struct itimerval later = {.it_value = {0, 200000}};
  stop = 0;
  signal(SIGALRM, on_alarm);
  setitimer(ITIMER_REAL, &later, NULL);
  assert_int_equal(ask(&has, note, deaf, 1000), SF_ECANCELLED);
  assert_false(has);
}

int main(void) {
  const int file = mkostemp(program, O_CLOEXEC);
  fchmod(file, 0700);
  close(file);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gate_base_with_answer_compares_the_last_line),
      cmocka_unit_test(test_gate_base_that_leaves_children_is_not_waited_for),
      cmocka_unit_test(test_gate_base_without_answer_is_ended_and_told),
      cmocka_unit_test(test_gate_base_stopped_ends_it),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(program);
  return failed;
}
