#include "harness/run/framework/framework.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/system/clock.h"
#include "harness/base/system/system_memory.h"
#include "harness/check/whole.h"
#include "harness/run/framework/framework_internal.h"
#include "harness/run/framework/framework_judge.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UNSTARTED_MAX = 3, STAGES_MAX = 5, KEEP_LENGTH = 340, MEMORY_TEXT = 50 };

/* --- runs ------------------------------------------------------------------------------------------------------- */

enum sf_status sf_framework_make_folder(const char *path, struct sf_error *error) {
  sf_remove_tree(path);
  if (mkdir(path, 0700) == 0) return SF_OK;
  return sf_error_set(error, sf_status_of_errno(errno), "%s: %s", path, strerror(errno));
}

static bool is_folder(const char *path) {
  struct stat about;
  return lstat(path, &about) == 0 && S_ISDIR(about.st_mode) && access(path, R_OK | W_OK | X_OK) == 0;
}

static const struct {
  enum sf_verdict verdict;
  enum sf_finding_class cls; /* of a finding */
  const char *lack, *before;
} meanings[] = {
    [SF_WORKER_REFUSED] = {SF_VERDICT_SKIP, 0, "", ""},
    [SF_WORKER_FULL] = {SF_VERDICT_INCONCLUSIVE, 0, "space", "no room for the trace: "},
    [SF_WORKER_RAISED] = {SF_VERDICT_FINDING, SF_CLASS_CRASH, "", ""},
    [SF_WORKER_ONE_SIDED] = {SF_VERDICT_FINDING, SF_CLASS_CRASH, "", ""},
    [SF_WORKER_DIED] = {SF_VERDICT_FINDING, SF_CLASS_CRASH, "", ""},
    [SF_WORKER_SILENT] = {SF_VERDICT_FINDING, SF_CLASS_HANG, "", ""},
    [SF_WORKER_GARBLED] = {SF_VERDICT_FINDING, SF_CLASS_PROTOCOL, "", ""},
    [SF_WORKER_UNSTARTED] = {SF_VERDICT_FINDING, SF_CLASS_CRASH, "", ""},
    [SF_WORKER_UNABLE] = {SF_VERDICT_INCONCLUSIVE, 0, "", "the ranks could not be started: "},
    [SF_WORKER_UNUSABLE] = {SF_VERDICT_INCONCLUSIVE, 0, "", "the machine failed the ranks: "},
};

static void outcome_of_report(struct sf_framework_outcome *out, const struct sf_worker_report *report, const char *run) {
  const enum sf_worker_end end = report->end;
  SF_ASSERT_LE((size_t)end + 1, sizeof meanings / sizeof meanings[0]);
  out->verdict = meanings[end].verdict;
  out->what.cls = meanings[end].cls;
  out->lack = meanings[end].lack;
  out->said = report->said;
  snprintf(out->run, sizeof out->run, "%s", run);
  snprintf(out->what.text, sizeof out->what.text, "%s%s%s", meanings[end].before, report->text,
           *report->text ? "" : sf_worker_end_name(end));
  if (!sf_worker_goes_on(end) || end == SF_WORKER_RAISED) memcpy(out->output, report->output, sizeof out->output);
  out->what.rank = report->rank;
}

/* Excuses a rank that the system ended, and not the framework. kills: sf_memory_kills before the run. */
static void excuse_memory(struct sf_framework_outcome *out, const struct sf_worker_report *report, double kills) {
  if ((report->end != SF_WORKER_DIED && report->end != SF_WORKER_ONE_SIDED) || !(sf_memory_kills() > kills)) return;
  out->verdict = SF_VERDICT_INCONCLUSIVE;
  out->lack = "memory";
  snprintf(out->what.text, sizeof out->what.text, "out of memory: the system ended a process: %s", report->text);
}

/* Excuses a fresh set that used up its processor time, which is not the framework's fault either. */
static void excuse_time(struct sf_framework_outcome *out, const struct sf_worker_report *report) {
  if (!report->may_be_spent) return;
  out->verdict = SF_VERDICT_INCONCLUSIVE;
  out->lack = "time";
  snprintf(out->what.text, sizeof out->what.text, "the ranks used up their processor time (ulimit -t): raise the limit: %s", report->text);
}

/* Whether this user may start that many processes more. Starts them, and ends them at once. */
static bool has_room_for(int32_t processes) {
  pid_t *children = sf_alloc((size_t)processes * sizeof *children);
  int32_t started = 0;
  if (!children) return true;
  for (; started < processes && (children[started] = fork()) > 0; started++) continue;
  if (started < processes && children[started] == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  for (int32_t i = 0; i < started; i++) kill(children[i], SIGKILL);
  for (int32_t i = 0; i < started; i++) waitpid(children[i], NULL, 0);
  sf_free(children);
  return started == processes;
}

/* Excuses a set that failed because its processes and threads find no room, whatever its ranks report. */
static void excuse_processes(struct sf_framework_outcome *out, const struct sf_worker_report *report, int32_t ranks) {
  static const int32_t PER_RANK = 8, OF_LAUNCHER = 16;
  if (out->verdict != SF_VERDICT_FINDING || out->what.cls != SF_CLASS_CRASH || has_room_for(PER_RANK * ranks + OF_LAUNCHER)) return;
  out->verdict = SF_VERDICT_INCONCLUSIVE;
  out->lack = "processes";
  snprintf(out->what.text, sizeof out->what.text, "no more processes can be started: %s: %s", sf_errno_text(EAGAIN).text, report->text);
}

enum sf_status sf_framework_ask_to_run(struct sf_framework *f, struct sf_worker_report *report, json_t *request, int32_t ranks,
                                       const char *folder, struct sf_error *error) {
  enum sf_status status = sf_framework_sets_ask(&f->sets, report, json_incref(request), ranks);
  if (status == SF_OK && (report->may_be_spent || f->sets.died_with_zygote)) {
    sf_worker_report_clear(report);
    status = sf_framework_make_folder(folder, error);
    if (status == SF_OK) status = sf_framework_sets_ask(&f->sets, report, json_incref(request), ranks);
  }
  json_decref(request);
  return status;
}

json_t *sf_framework_request(const json_t *c, const char *run, int32_t draw, int32_t ranks, const char *anchors, const char *folder) {
  json_t *request = json_pack("{s:s, s:s, s:i, s:s, s:O}", "request", "run", "run", run, "ranks", (int)ranks, "out", folder, "case", c);
  bool good = request != NULL;
  if (good && draw >= 0) good = json_object_set_new(request, "draw", json_integer(draw)) == 0;
  if (good && *anchors) good = json_object_set_new(request, "anchors", json_string(anchors)) == 0;
  if (good) return request;
  json_decref(request);
  return NULL;
}

enum sf_status sf_framework_run_one(struct sf_framework *f, bool *good, struct sf_framework_outcome *outcome, const json_t *c,
                                    const char *run, int32_t draw, const char *folder, struct sf_error *error) {
  struct sf_worker_report report;
  const bool is_candidate = strcmp(run, "candidate") == 0;
  const int32_t ranks = is_candidate ? sf_description_ranks(f->description, c) : 1;
  /* A finding on simulated ranks is confirmed on real ones. */
  const int32_t processes = sf_description_simulates(f->description) && !f->is_thorough ? 1 : ranks;
  char name[24];
  snprintf(name, sizeof name, draw >= 0 ? "%s %d" : "%s", run, draw);
  enum sf_status status = sf_framework_make_folder(folder, error);
  *good = status == SF_OK;
  if (status != SF_OK) return sf_framework_blame(outcome, name, status, error);
  const double kills = sf_memory_kills();
  status = sf_framework_ask_to_run(f, &report, sf_framework_request(c, run, draw, ranks, is_candidate ? "" : f->anchors, folder), processes,
                                   folder, error);
  *good = status == SF_OK && report.end == SF_WORKER_ANSWERED;
  f->unstarted = report.end == SF_WORKER_UNSTARTED ? f->unstarted + 1 : 0;
  if (status == SF_OK && !*good) {
    outcome_of_report(outcome, &report, name);
    excuse_memory(outcome, &report, kills);
    excuse_time(outcome, &report);
    excuse_processes(outcome, &report, processes);
  } else if (*good && !is_folder(folder)) {
    *good = false;
    sf_error_set(error, SF_EINPUT, "%s: the worker removed the folder of its trace, or put something else in its place", folder);
    status = sf_framework_blame(outcome, name, SF_EINPUT, error);
  }
  sf_worker_report_clear(&report);
  return status;
}

static int32_t draws_of(const struct sf_framework *f) { return f->options.draws ? f->options.draws : sf_description_draws(f->description); }

/* How many perturbed runs may be enough for a finding that is far off. Runs are perturbed in several ways in turn, and what moves a tensor
 * may be one of them alone: fewer runs say nothing of the others. */
static int32_t few_draws(const struct sf_framework *f) { return (draws_of(f) + 2) / 3; }

/* Whether the outcome is the one that is shown or counted. Else the finding is judged again: it is being shrunk or confirmed. */
static bool is_final(const struct sf_framework *f) { return f->supposes || !(f->is_quick || f->is_thorough); }

/* Numbers of perturbed runs to judge by, one after the other until the outcome is sure; returns how many. More of them only widen the
 * bounds, so a pass by few is right. An anchored reference begins without any, since it is one case's alone; and so does a judgement that
 * is not final, which few runs decide. If traces are kept, all are run at once. */
static int32_t stages_of(int32_t out[STAGES_MAX], const struct sf_framework *f) {
  const int32_t all = draws_of(f), few = few_draws(f);
  const bool begins_without = *f->anchors || (sf_description_is_anchored(f->description) && !is_final(f));
  int32_t count = 0;
  if (begins_without && !f->options.keep) out[count++] = 0;
  if (begins_without && !f->options.keep && few > 1) out[count++] = 1;
  if (begins_without && !f->options.keep && few > 2 && f->is_quick) out[count++] = 2;
  if (few < all && !f->options.keep) out[count++] = few;
  out[count++] = all;
  return count;
}

void sf_framework_noise_path(char *out, size_t size, const struct sf_framework *f, const char *reference, int32_t draws) {
  if (draws < draws_of(f))
    snprintf(out, size, "%.370s/noise-%d.safetensors", reference, draws);
  else
    snprintf(out, size, "%.380s/noise.safetensors", reference);
}

/* Makes the perturbed runs up to `count`, and the noise file from all of them. Removes them after the last, unless traces are kept. folder:
 * the case's. */
static enum sf_status run_draws(struct sf_framework *f, bool *good, struct sf_framework_outcome *outcome, const json_t *c,
                                const char *folder, const char *reference, int32_t count, struct sf_error *error) {
  char(*draws)[SF_FRAMEWORK_PATH] = sf_alloc((size_t)count * sizeof *draws);
  char noise[SF_FRAMEWORK_PATH];
  enum sf_status status = draws ? SF_OK : SF_ENOMEM;
  for (int32_t i = 0; status == SF_OK && *good && i < count; i++) {
    snprintf(draws[i], sizeof draws[i], "%.370s/draw-%d", folder, i);
    if (i >= f->draws_made) status = sf_framework_run_one(f, good, outcome, c, "draw", i, draws[i], error);
  }
  sf_framework_noise_path(noise, sizeof noise, f, reference, count);
  if (status == SF_OK && *good)
    status = sf_framework_noise(good, outcome, noise, reference, (const char(*)[SF_FRAMEWORK_PATH])draws, count, count < draws_of(f),
                                &f->draws_distinct, error);
  const bool done = status != SF_OK || !*good || count == draws_of(f);
  for (int32_t i = 0; draws && done && !f->options.keep && i < count; i++) {
    if (*draws[i]) sf_remove_tree(draws[i]);
  }
  f->draws_made = status == SF_OK && *good ? count : 0;
  sf_free(draws);
  return status;
}

/* Makes the reference of the case's function with its first noise file, unless the last case had the same function. A reference with
 * anchors is the case's own. */
static enum sf_status make_reference(struct sf_framework *f, bool *good, struct sf_framework_outcome *outcome, const json_t *c,
                                     const char *folder, struct sf_error *error) {
  char path[SF_FRAMEWORK_PATH];
  int32_t stages[STAGES_MAX];
  char *text = sf_description_function_text(f->description, c);
  if (!text) return SF_ENOMEM;
  *good = !*f->anchors && *f->reference && f->reference_text && strcmp(text, f->reference_text) == 0;
  if (*good) {
    free(text);
    return SF_OK;
  }
  *f->reference = '\0';
  f->draws_made = 0;
  free(f->reference_text);
  f->reference_text = *f->anchors ? NULL : text;
  if (*f->anchors) free(text);
  snprintf(path, sizeof path, "%.380s/reference", folder);
  enum sf_status status = sf_framework_run_one(f, good, outcome, c, "reference", -1, path, error);
  if (status == SF_OK && *good) status = run_draws(f, good, outcome, c, folder, path, (stages_of(stages, f), stages[0]), error);
  if (status == SF_OK && *good) memcpy(f->reference, path, sizeof path);
  return status;
}

/* How many times further out than its bound each finding has to be for so many perturbed runs to be enough. INFINITY: more runs are due.
 * Few runs measure the noise once each way to perturb has come. A judgement that is not final may stop earlier, at a wider margin: one that
 * confirms as soon as runs measure, a quick one at the first run that moved anything. */
static double margin_needed(const struct sf_framework *f, int32_t draws) {
  static const double FURTHER_QUICK = 2, FURTHER_THOROUGH = 10;
  const bool moves = f->draws_distinct > 0, measures = draws >= few_draws(f) && moves;
  if (draws == 0) return is_final(f) ? INFINITY : DBL_MAX; /* what depends on no noise level stays as it is */
  if (measures && !f->is_thorough) return sf_draws_widening(draws);
  if (is_final(f)) return INFINITY;
  if (measures) return FURTHER_THOROUGH * sf_draws_widening(draws);
  return f->is_quick && moves ? FURTHER_QUICK * sf_draws_widening(draws) : INFINITY;
}

/* Judges by the first perturbed runs, and by more of them until they would change nothing. Each case begins with the first, so that its
 * verdict does not depend on the cases before. */
static enum sf_status judge(struct sf_framework *f, struct sf_framework_outcome *outcome, const json_t *c, const char *folder,
                            const char *candidate, struct sf_error *error) {
  const struct sf_framework_outcome before = *outcome;
  char noise[SF_FRAMEWORK_PATH];
  int32_t stages[STAGES_MAX];
  const int32_t count = stages_of(stages, f);
  bool good = true, sure = false;
  double margin = 0;
  enum sf_status status = SF_OK;
  for (int32_t i = 0; i < count && status == SF_OK && good && !sure; i++) {
    *outcome = before;
    sf_framework_noise_path(noise, sizeof noise, f, f->reference, stages[i]);
    if (f->draws_made > stages[i] && access(noise, R_OK) != 0) continue; /* the case before began with more */
    if (f->draws_made < stages[i]) status = run_draws(f, &good, outcome, c, folder, f->reference, stages[i], error);
    if (status == SF_OK && good) status = sf_framework_judge(&good, &margin, outcome, noise, f->reference, candidate, NULL, error);
    sure = outcome->verdict == SF_VERDICT_PASS || (outcome->verdict == SF_VERDICT_FINDING && margin > margin_needed(f, stages[i]));
  }
  if (status != SF_OK || !good) *f->reference = '\0'; /* it may be the file that cannot be read any more */
  return status;
}

/* Folders of processes that died use memory, so they are removed first. */
static const char *memory_for_traces(void) {
  struct statvfs room;
  sf_temporary_sweep("/dev/shm");
  return statvfs("/dev/shm", &room) == 0 && (double)room.f_bavail * (double)room.f_frsize >= SF_FRAMEWORK_ROOM_BYTES ? "/dev/shm" : "/tmp";
}

/* Makes the folder for traces, in memory if there is enough. A worker that cannot reserve space there would fail for every case. Paths must
 * be short, because the path of a socket has little room. */
static enum sf_status make_work_folder(struct sf_framework *f, struct sf_error *error) {
  struct sf_error detail = {SF_OK, ""};
  const char *memory = f->options.memory ? f->options.memory : memory_for_traces();
  if (strlen(memory) > MEMORY_TEXT)
    return sf_error_set(error, SF_EUSAGE, "no folder for traces: %.100s: the path is longer than %d characters", memory, MEMORY_TEXT);
  if (sf_temporary_create(&f->folder, memory, &detail) != SF_OK)
    return sf_error_set(error, SF_EUSAGE, "no folder for traces: %s", detail.text);
  sf_temporary_keep(&f->folder);
  f->sets.start = (struct sf_rank_set_options){.command = f->options.command,
                                               .launcher = f->options.launcher,
                                               .may_fork = f->options.may_fork,
                                               .start_seconds = f->options.start_seconds,
                                               .silent_seconds = f->options.silent_seconds,
                                               .folder = f->folder.path,
                                               .held = f->folder.lock,
                                               .stop = f->options.stop};
  return SF_OK;
}

/* A worker may have removed the folder and everything in it. */
static enum sf_status restore_work_folder(struct sf_framework *f, struct sf_error *error) {
  if (is_folder(f->folder.path)) return SF_OK;
  *f->reference = '\0';
  sf_temporary_remove(&f->folder);
  return make_work_folder(f, error);
}

/* Makes the candidate's tensors the anchors of its reference, if it ran end to end. */
static enum sf_status set_anchors(struct sf_framework *f, bool *good, struct sf_framework_outcome *outcome, const char *folder,
                                  const char *candidate, struct sf_error *error) {
  struct sf_trace_set set = {0};
  char path[SF_FRAMEWORK_PATH];
  snprintf(path, sizeof path, "%.380s/anchors", folder);
  enum sf_status status = sf_trace_set_open(&set, candidate, error);
  const bool is_e2e = status == SF_OK && !set.isolated;
  if (is_e2e) status = sf_framework_make_folder(path, error);
  if (is_e2e && status == SF_OK) status = sf_whole_write(path, &set, error);
  if (is_e2e && status == SF_OK) memcpy(f->anchors, path, sizeof path);
  sf_trace_set_close(&set);
  *good = status == SF_OK;
  return sf_framework_blame(outcome, "candidate", status, error);
}

/* Runs the candidate before its reference, which can then be given its tensors. A failure that comes on one device too is the reference's.
 */
static enum sf_status run_candidate_first(struct sf_framework *f, bool *good, struct sf_framework_outcome *outcome, const json_t *c,
                                          const char *folder, const char *candidate, struct sf_error *error) {
  const struct sf_framework_outcome before = *outcome;
  enum sf_status status = sf_framework_run_one(f, good, outcome, c, "candidate", -1, candidate, error);
  if (status == SF_OK && *good) return set_anchors(f, good, outcome, folder, candidate, error);
  if (status != SF_OK || outcome->verdict != SF_VERDICT_FINDING) return status;
  struct sf_framework_outcome alone = before;
  bool runs_alone = false;
  status = make_reference(f, &runs_alone, &alone, c, folder, error);
  if (status == SF_OK && !runs_alone) *outcome = alone;
  return status;
}

static enum sf_status run_case(struct sf_framework *f, struct sf_framework_outcome *outcome, const json_t *c, struct sf_error *error) {
  char folder[SF_FRAMEWORK_PATH - 20], candidate[SF_FRAMEWORK_PATH];
  bool good = true;
  *f->anchors = '\0';
  enum sf_status status = restore_work_folder(f, error);
  if (status != SF_OK) return sf_framework_blame(outcome, "", status == SF_EUSAGE ? SF_EIO : status, error);
  if (f->options.keep) {
    snprintf(folder, sizeof folder, "%.350s/case-%05lld", f->options.keep, (long long)f->cases);
    status = sf_framework_make_folder(folder, error);
    if (status == SF_ENOSPC) return sf_framework_blame(outcome, "", status, error);
  } else {
    snprintf(folder, sizeof folder, "%.350s", f->folder.path);
  }
  snprintf(candidate, sizeof candidate, "%s/candidate", folder);
  const bool is_first = sf_description_is_anchored(f->description);
  if (status == SF_OK && is_first) status = run_candidate_first(f, &good, outcome, c, folder, candidate, error);
  if (status == SF_OK && good) status = make_reference(f, &good, outcome, c, folder, error);
  if (status == SF_OK && good && !is_first) status = sf_framework_run_one(f, &good, outcome, c, "candidate", -1, candidate, error);
  const struct sf_framework_outcome before = *outcome;
  if (status == SF_OK && good) status = judge(f, outcome, c, folder, candidate, error);
  const bool is_wrong = outcome->verdict == SF_VERDICT_FINDING && outcome->what.cls == SF_CLASS_TOLERANCE;
  if (status == SF_OK && good && f->supposes && is_wrong && f->draws_made > 0)
    status = sf_framework_judge_supposing(f, outcome, c, folder, candidate, &before, error);
  const bool has_wrong_tensor = is_wrong || (outcome->verdict == SF_VERDICT_FINDING && outcome->what.cls == SF_CLASS_CONFLICT);
  if (status == SF_OK && f->supposes && has_wrong_tensor && *f->anchors && sf_description_has_operations(f->description))
    status = sf_framework_find_operation(f, outcome, c, folder, error);
  if (!f->options.keep) sf_remove_tree(candidate);
  if (!f->options.keep && *f->anchors) sf_remove_tree(f->anchors);
  return status;
}

static struct sf_framework_outcome nothing_yet(void) {
  return (struct sf_framework_outcome){.lack = "", .what = {.kind = -1, .module_class = -1, .rank = -1, .row = -1}};
}

static bool hung(const struct sf_framework_outcome *outcome) {
  return outcome->verdict == SF_VERDICT_FINDING && outcome->what.cls == SF_CLASS_HANG;
}

const char *sf_framework_word(const struct sf_framework_outcome *outcome) {
  return outcome->verdict == SF_VERDICT_FINDING ? sf_finding_class_name(outcome->what.cls)
         : *outcome->lack                       ? outcome->lack
                                                : sf_verdict_name(outcome->verdict);
}

/* A busy machine changes only the time: a hang that does not come again on a fresh set is flaky. */
static enum sf_status confirm_hang(struct sf_framework *f, struct sf_framework_outcome *outcome, const json_t *c, struct sf_error *error) {
  struct sf_framework_outcome again = nothing_yet();
  const enum sf_status status = run_case(f, &again, c, error);
  if (status != SF_OK || hung(&again)) return status;
  outcome->what.cls = SF_CLASS_FLAKY;
  snprintf(again.what.text, sizeof again.what.text, "hung once (%.300s), then: %s", outcome->what.text, sf_framework_word(&again));
  memcpy(outcome->what.text, again.what.text, sizeof outcome->what.text);
  return SF_OK;
}

/* Cuts the folder off paths in it: its name differs from process to process, and texts identify findings. */
static void shorten_paths(char *text, const char *folder) {
  const size_t length = strlen(folder);
  for (char *at = text; (at = strstr(at, folder)) != NULL;) {
    const size_t drop = length + (at[length] == '/');
    memmove(at, at + drop, strlen(at + drop) + 1);
  }
}

enum sf_status sf_framework_run(struct sf_framework *f, struct sf_framework_outcome *outcome, const json_t *complete,
                                struct sf_error *error) {
  const double began = sf_clock_seconds();
  const char *refusal = sf_description_refusal(f->description, complete);
  *outcome = nothing_yet();
  outcome->evidence = f->evidence;
  enum sf_status status = SF_OK;
  if (refusal) {
    outcome->verdict = SF_VERDICT_SKIP;
    snprintf(outcome->what.text, sizeof outcome->what.text, "%s", refusal);
  } else {
    status = run_case(f, outcome, complete, error);
    if (status == SF_OK && hung(outcome)) status = confirm_hang(f, outcome, complete, error);
  }
  shorten_paths(outcome->what.text, f->folder.path);
  f->cases++;
  outcome->seconds = sf_clock_seconds() - began;
  return status;
}

enum sf_status sf_framework_ask_script(struct sf_framework *f, char *out, size_t size, const json_t *complete, const char *first,
                                       struct sf_error *error) {
  struct sf_worker_report report;
  enum sf_status status =
      sf_framework_sets_ask(&f->sets, &report, json_pack("{s:s, s:O, s:s}", "request", "script", "case", complete, "first", first), 1);
  const char *text = json_string_value(json_object_get(report.value, "script"));
  if (status == SF_OK && report.end != SF_WORKER_ANSWERED)
    status = sf_error_set(error, SF_EIO, "the worker wrote no script: %.300s", report.text);
  if (status == SF_OK && (!text || strlen(text) >= size))
    status = sf_error_set(error, SF_EINPUT, "the worker's script is no text, or longer than %zu characters", size - 1);
  if (status == SF_OK) snprintf(out, size, "%s", text);
  sf_worker_report_clear(&report);
  return status;
}

void sf_framework_suppose(struct sf_framework *f, bool supposes) { f->supposes = supposes; }
void sf_framework_show(struct sf_framework *f, struct sf_evidence *evidence) { f->evidence = evidence; }
void sf_framework_be_thorough(struct sf_framework *f, bool thorough) { f->is_thorough = thorough; }
void sf_framework_be_quick(struct sf_framework *f, bool quick) { f->is_quick = quick; }

bool sf_framework_is_exhausted(const struct sf_framework *f) { return f->unstarted >= UNSTARTED_MAX; }

/* --- life ------------------------------------------------------------------------------------------------------- */

static enum sf_status ask_description(struct sf_framework *f, struct sf_worker_report *report, struct sf_error *error) {
  enum sf_status status = sf_framework_sets_describe(&f->sets, report);
  if (status != SF_OK) return status;
  if (report->end != SF_WORKER_ANSWERED)
    return sf_error_set(error, SF_EIO, "the worker does not describe itself: %.400s%s%.*s", report->text,
                        *report->output ? "; it printed: " : "", (int)strcspn(report->output, "\n"), report->output);
  status = sf_description_create(&f->description, report->value, error);
  if (status == SF_OK) f->described = json_incref(report->value);
  return status;
}

enum sf_status sf_framework_create(struct sf_framework **out, struct sf_worker_report *report, const struct sf_framework_options *options,
                                   struct sf_error *error) {
  memset(report, 0, sizeof *report);
  struct sf_framework *f = sf_alloc(sizeof *f);
  if (!f) return SF_ENOMEM;
  f->options = *options;
  f->sets.ranks_max = options->ranks_max;
  if (options->zygote) snprintf(f->sets.zygote, sizeof f->sets.zygote, "%s", options->zygote);
  enum sf_status status = SF_OK;
  if (options->keep && strlen(options->keep) > KEEP_LENGTH)
    status = sf_error_set(error, SF_EUSAGE, "%.60s..: the path for traces is too long, at most %d bytes", options->keep, KEEP_LENGTH);
  if (status == SF_OK) status = make_work_folder(f, error);
  if (status == SF_OK) status = ask_description(f, report, error);
  if (status == SF_OK)
    *out = f;
  else
    sf_framework_destroy(f);
  return status;
}

void sf_framework_destroy(struct sf_framework *f) {
  if (!f) return;
  sf_framework_sets_end(&f->sets);
  sf_temporary_remove(&f->folder);
  json_decref(f->described);
  sf_description_destroy(f->description);
  free(f->reference_text);
  sf_free(f);
}

void sf_framework_rest(struct sf_framework *f) {
  if (!f) return;
  sf_framework_sets_rest(&f->sets);
  if (*f->sets.zygote) return; /* it listens in the folder, or forks sets so fast that the reference there is worth keeping */
  sf_temporary_remove(&f->folder);
}

const char *sf_framework_zygote(const struct sf_framework *f) { return *f->sets.zygote ? f->sets.zygote : NULL; }
const struct sf_description *sf_framework_description(const struct sf_framework *f) { return f->description; }
const json_t *sf_framework_described(const struct sf_framework *f) { return f->described; }
int64_t sf_framework_restarts(const struct sf_framework *f) { return f->sets.restarts; }
