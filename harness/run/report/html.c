/* The page for a browser: verdict, facts, figures of the run, a list of the items that are not quiet, and a section for each. One file that
 * needs no other: its pictures are SVG, its style stands in it, it has no script. It is well-formed XML too. */
#include "harness/base/sinks.h"
#include "harness/run/plot/colours.h"
#include "harness/run/report/report.h"
#include "harness/run/support/version.h"

#include <string.h>

enum { OPEN_MAX = 3 }; /* of so many findings the sections are open */

static const char style[] =
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,'Segoe UI',sans-serif}\n"
    "main{max-width:760px;margin:0 auto;padding:40px 20px 64px}\n"
    "h1{font-size:28px;line-height:1.25;margin:4px 0 20px;overflow-wrap:anywhere}\n"
    "h2{font-size:19px;line-height:1.35;margin:0;overflow-wrap:anywhere}\n"
    "h3{font-size:16px;margin:36px 0 4px}\n"
    "p{margin:0 0 12px;overflow-wrap:anywhere}\n"
    ".kicker,.note,figcaption,dt,footer{color:var(--soft)}\n"
    ".kicker{margin:0;font-size:14px}\n"
    ".note,figcaption{font-size:14px;line-height:1.5;margin:0 0 12px}\n"
    ".lead{font-size:18px;line-height:1.5}\n"
    ".tag{display:inline-block;font-size:13px;font-weight:600;line-height:1;padding:5px 9px;border-radius:4px;margin-right:10px;"
    "vertical-align:2px;background:var(--panel);color:var(--ink);white-space:nowrap}\n"
    ".tag.bad{background:var(--bad);color:var(--paper)}.tag.good{background:var(--good);color:var(--paper)}\n"
    ".cause{background:var(--panel);border-left:4px solid var(--bad);padding:14px 18px;margin:16px 0 0;overflow-wrap:anywhere}\n"
    ".cause p:last-child{margin:0}\n"
    "dl{display:grid;grid-template-columns:minmax(84px,max-content) 1fr;gap:4px 20px;margin:0 0 12px}\n"
    "dd{margin:0;overflow-wrap:anywhere}\n"
    "code,pre,text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\n"
    "code{font-size:14px;overflow-wrap:anywhere}\n"
    "pre{font-size:13px;line-height:1.5;background:var(--panel);padding:12px 16px;margin:0 0 12px;border-radius:4px;white-space:pre-wrap;"
    "overflow-wrap:anywhere}\n"
    "pre.command{user-select:all}\n"
    "text{font-size:12px}.bold{font-weight:700}\n"
    "section{border-top:1px solid var(--line);padding:28px 0}\n"
    "figure{margin:0}\n"
    ".scroll{overflow-x:auto;padding-bottom:4px}\n"
    ".row{display:flex;flex-wrap:wrap;gap:20px 24px}\n"
    "svg{display:block}\n"
    "table{border-collapse:collapse;font-size:14px;width:100%}\n"
    "th{text-align:left;font-weight:600;color:var(--soft);white-space:nowrap}\n"
    "th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}\n"
    "td.number,th.number{text-align:right;white-space:nowrap;width:1%}\n"
    ".stack td:nth-child(2){white-space:nowrap}\n"
    "a{color:var(--calm)}\n"
    "summary{cursor:pointer;overflow-wrap:anywhere}\n"
    "summary h2{display:inline}\n"
    "details.more{margin-top:20px}\n"
    "footer{border-top:1px solid var(--line);padding-top:16px;font-size:14px}\n"
    "@media(max-width:520px){main{padding:24px 14px 40px}h1{font-size:23px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}\n"
    ".stack th{display:none}.stack tr,.stack td{display:block}.stack tr{padding:6px 0;border-bottom:1px solid var(--line)}\n"
    ".stack td{padding:1px 0;border:0}.stack td:first-child{font-weight:600}\n"
    ".stack td[data-column]::before{content:attr(data-column) \": \";color:var(--soft)}}\n"
    "@media print{main{max-width:none;padding:0}section{break-inside:auto}figure,dl,.cause{break-inside:avoid}.scroll{overflow:visible}}\n";

static const char *data_of(const struct sf_text *text) { return text->data ? text->data : ""; }

static int32_t count_of(const struct sf_report *report, enum sf_report_outcome outcome) {
  int32_t count = 0;
  for (int32_t i = 0; i < report->item_count; i++) count += !report->items[i].is_quiet && report->items[i].outcome == outcome;
  return count;
}

static bool has_known(const struct sf_report *report) {
  for (int32_t i = 0; i < report->item_count; i++)
    if (!report->items[i].is_quiet && strncmp(report->items[i].state, "known", strlen("known")) == 0) return true;
  return false;
}

static void append_head(struct sf_text *out, const struct sf_report *report) {
  sf_text_append(out, "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>");
  sf_html_append(out, "%s", report->title);
  sf_text_append(out, "</title>\n<style>\n");
  sf_colours_append(out);
  sf_text_append(out, "%s</style>\n</head>\n<body>\n<main>\n", style);
}

static void append_kicker(struct sf_text *out, const struct sf_report *report) {
  sf_text_append(out, "<p class=\"kicker\">");
  sf_html_append(out, "%s", report->title);
  sf_text_append(out, "</p>\n");
}

static void append_facts(struct sf_text *out, const struct sf_report *report) {
  if (report->fact_count == 0) return;
  sf_text_append(out, "<dl>\n");
  for (int32_t i = 0; i < report->fact_count; i++) {
    sf_text_append(out, "<dt>");
    sf_html_append(out, "%s", report->facts[i].name);
    sf_text_append(out, "</dt><dd>");
    sf_html_append(out, "%s%s", data_of(&report->facts[i].value), data_of(&report->facts[i].said));
    sf_text_append(out, "</dd>\n");
  }
  sf_text_append(out, "</dl>\n");
}

static void append_verdict(struct sf_text *out, const struct sf_report *report) {
  const int32_t wrong = count_of(report, SF_REPORT_FAILED);
  sf_text_append(out, "<header>\n");
  append_kicker(out, report);
  sf_text_append(out, "<h1>");
  if (report->nothing.data)
    sf_text_append(out, "Not judged");
  else if (wrong > 0)
    sf_text_append(out, "%d %sfinding%s", wrong, has_known(report) ? "new " : "", sf_plural(wrong));
  else
    sf_text_append(out, report->passed ? "Nothing new was found" : "Failed");
  sf_text_append(out, "</h1>\n");
  if (report->nothing.data) {
    sf_text_append(out, "<p>");
    sf_html_append(out, "%s", report->nothing.data);
    sf_text_append(out, "</p>\n");
  }
  append_facts(out, report);
  sf_text_append(out, "</header>\n");
}

static void append_tag(struct sf_text *out, const struct sf_report_item *item) {
  static const char *const classes[SF_REPORT_OUTCOME_COUNT] = {"tag good", "tag bad", "tag"};
  sf_text_append(out, "<span class=\"%s\">", classes[item->outcome]);
  sf_html_append(out, "%s", item->state);
  sf_text_append(out, "</span>");
}

static void append_list(struct sf_text *out, const struct sf_report *report) {
  sf_text_append(out, "<section>\n<h2>Overview</h2>\n<table>\n<tr><th>state</th><th>what</th></tr>\n");
  for (int32_t i = 0; i < report->item_count; i++) {
    const struct sf_report_item *item = &report->items[i];
    if (item->is_quiet) continue;
    sf_text_append(out, "<tr><td>");
    append_tag(out, item);
    sf_text_append(out, "</td><td><a href=\"#item-%d\">", i);
    sf_html_append(out, "%s", data_of(&item->name));
    sf_text_append(out, "</a></td></tr>\n");
  }
  sf_text_append(out, "</table>\n%s</section>\n",
                 report->figures.data ? "<p class=\"note\">Below the findings: <a href=\"#run\">the campaign as a whole</a>.</p>\n" : "");
}

/* What there is to read of an item below its name. */
static void append_body(struct sf_text *out, const struct sf_report_item *item) {
  if (item->message.length > 0 && item->figures.length == 0) {
    sf_text_append(out, "<p class=\"lead\">");
    sf_html_append(out, "%s", item->message.data);
    sf_text_append(out, "</p>\n");
  }
  sf_text_append(out, "%s", data_of(&item->figures));
  if (item->next.length > 0) {
    sf_text_append(out, item->has_command ? "<h3>See it again</h3>\n<pre class=\"command\">" : "<p class=\"note\">");
    sf_html_append_lines(out, item->next.data);
    sf_text_append(out, item->has_command ? "</pre>\n" : "</p>\n");
  }
}

static void append_text(struct sf_text *out, const struct sf_report_item *item) {
  if (item->text.length > 0) {
    sf_text_append(out, "<details class=\"more\">\n<summary>The report as text</summary>\n<pre>");
    sf_html_append_lines(out, item->text.data);
    sf_text_append(out, "</pre>\n</details>\n");
  }
}

static void append_item(struct sf_text *out, const struct sf_report_item *item, int32_t number, bool is_open) {
  sf_text_append(out, "<section id=\"item-%d\">\n<details%s>\n<summary>", number, is_open ? " open=\"open\"" : "");
  append_tag(out, item);
  sf_text_append(out, "<h2>");
  sf_html_append(out, "%s", data_of(&item->name));
  sf_text_append(out, "</h2></summary>\n");
  append_body(out, item);
  append_text(out, item);
  sf_text_append(out, "</details>\n</section>\n");
}

/* A page about one thing alone: its name is the heading, and what is true of the run comes last. */
static void append_single(struct sf_text *out, const struct sf_report *report, const struct sf_report_item *item) {
  append_kicker(out, report);
  sf_text_append(out, "<p>");
  append_tag(out, item);
  sf_text_append(out, "</p>\n<h1>");
  sf_html_append(out, "%s", data_of(&item->name));
  sf_text_append(out, "</h1>\n");
  append_body(out, item);
  if (report->fact_count > 0) sf_text_append(out, "<h3>The run</h3>\n");
  append_facts(out, report);
  append_text(out, item);
}

/* The only item to be read, in a report without figures of its own; NULL: there are more, or none. */
static const struct sf_report_item *single_of(const struct sf_report *report) {
  const struct sf_report_item *single = NULL;
  for (int32_t i = 0; i < report->item_count; i++) {
    if (report->items[i].is_quiet) continue;
    if (single) return NULL;
    single = &report->items[i];
  }
  return report->figures.data || report->item_count > 1 ? NULL : single;
}

static void append_foot(struct sf_text *out) {
  sf_text_append(out, "<footer>shardfuzz ");
  sf_html_append(out, "%s%s%s", sf_version, *sf_version_commit ? ", commit " : "", sf_version_commit);
  sf_text_append(out, "</footer>\n");
}

static void append_all(struct sf_text *out, const struct sf_report *report) {
  int32_t shown = 0;
  for (int32_t i = 0; i < report->item_count; i++) shown += !report->items[i].is_quiet;
  append_verdict(out, report);
  if (shown > 1) append_list(out, report);
  for (int32_t i = 0; i < report->item_count; i++)
    if (!report->items[i].is_quiet) append_item(out, &report->items[i], i, shown <= OPEN_MAX);
  if (report->figures.data) sf_text_append(out, "<section id=\"run\">\n<h2>The campaign</h2>\n%s</section>\n", report->figures.data);
}

enum sf_status sf_report_append_html(struct sf_text *out, const struct sf_report *report) {
  const struct sf_report_item *single = single_of(report);
  append_head(out, report);
  if (single)
    append_single(out, report, single);
  else
    append_all(out, report);
  append_foot(out);
  sf_text_append(out, "</main>\n</body>\n</html>\n");
  return out->failed ? SF_ENOMEM : SF_OK;
}
