#!/usr/bin/env python3
"""Writes RESULTS.md from the JSON lines that run_all.sh printed.

    tests/bench/run_all.sh BUILD_DIR >lines.jsonl;  tests/bench/results.py lines.jsonl [--note TEXT] >tests/bench/RESULTS.md

Of several lines of one bench the last counts. Nothing in RESULTS.md is written by hand: what the figures are compared with stands here.
"""
import argparse
import json

ROWS = []  # functions: lines by bench -> (what, bar, figure, met or None, remark, bench)


def row(bench):
    def register(function):
        ROWS.append((bench, function))
        return function
    return register


def percent(value, digits=2):
    return f"{100 * value:.{digits}f} %"


CONDITIONS = ("fp32_isolated", "fp32_e2e", "bf16_isolated", "bf16_e2e", "fp16_isolated", "fp16_e2e", "fp8_isolated", "fp8_e2e")


PRECISIONS = ("fp32", "bf16", "fp16", "fp8")
VERDICTS = ("PASS", "FINDING", "INCONCLUSIVE", "SKIP")


def of_precision(r, precision, *verdicts):
    return sum(r[c][v] for c in CONDITIONS if c in r and c.startswith(precision + "_") for v in verdicts or VERDICTS)


@row("bench_clean")
def clean_alarms(r):
    figure = f"{r['PASS']:,} pass, {r['FINDING']} findings, {r['INCONCLUSIVE']:,} inconclusive, {r['failed']} failed of {r['cases']:,}"
    remark = ", ".join(f"{p} {of_precision(r, p):,}" for p in PRECISIONS) + " cases; " \
             f"{r['cases_that_needed_more_draws']:,} needed more draws than the first; {r['cases_per_cpu_s']:.0f} cases per CPU second"
    return "Clean cases of the default space", "no finding", figure, r["FINDING"] == r["failed"] == 0, remark


@row("bench_clean")
def clean_inconclusive(r):
    reasons = {}
    for condition in (c for c in CONDITIONS if c in r):
        for reason, count in r[condition].get("inconclusive_by_reason", {}).items():
            reasons[reason] = reasons.get(reason, 0) + count
    shares = {p: of_precision(r, p, "INCONCLUSIVE") / max(1, of_precision(r, p)) for p in PRECISIONS}
    figure = ", ".join(f"{p} {percent(share)}" for p, share in shares.items())
    remark = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
    return "Inconclusive cases by precision", "at most 2 % of each", figure, max(shares.values()) <= 0.02, remark


@row("bench_clean")
def clean_unchecked(r):
    shares = {c: r[c]["unchecked_share"] for c in CONDITIONS if c in r}
    isolated = max(s for c, s in shares.items() if c.endswith("isolated"))
    met = isolated <= 0.01 and shares.get("fp32_e2e", 0) <= 0.02 and max(shares.values()) <= 0.15
    figure = ", ".join(f"{c.replace('_', ' ')} {percent(s)}" for c, s in shares.items())
    return "Tensors not checked", "isolated at most 1 %, fp32 end to end 2 %, the others 15 %", figure, met, "vacuous, ill-conditioned, or behind an overflow or a turned tie"


@row("bench_clean")
def clean_pairs(r):
    pairs = r["fp32_pairs_often_unchecked"]
    figure = ", ".join(f"{p['kind']} {p['module']} ({percent(p['cases_unchecked'], 0)})" for p in pairs) or "none"
    return "Pairs (kind, module) unchecked in more than 20 % of the fp32 cases that have them", "none", figure, not pairs, ""


@row("bench_ratio")
def ratios(r):
    half = r["unseen_half"]
    keys = [f"{m}_{mode}" for m in ("fro", "row") for mode in ("isolated", "e2e")]
    shares = {k: half["max_share_of_factor_" + k] for k in keys}
    first = max(r["first_half"]["max_share_of_factor_" + k] for k in keys)
    figure = ", ".join(f"{k.replace('_', ' ')} {v:.2f}" for k, v in shares.items())
    remark = f"{half['cases']:,} unseen cases; largest of the first half {first:.2f}; table below"
    return "Largest clean ratio over its alarm factor, unseen half", "at most 0.80", figure, max(shares.values()) <= 0.8, remark


@row("bench_sensitivity")
def sensitivity(r):
    kinds = ("act", "act_grad", "wgrad", "main_grad")
    shares = {(c, k): r[c][k]["all"]["flagged_share"] for c in CONDITIONS if c in r for k in kinds if "all" in r[c].get(k, {})}
    judged = {key: s for key, s in shares.items() if key[0] not in ("bf16_e2e", "fp16_e2e", "fp8_e2e")}
    worst = sorted(judged.items(), key=lambda item: item[1])[:3]
    figure = "; ".join(f"{c.replace('_', ' ')}: " + ", ".join(f"{k} {percent(shares[c, k], 1)}" for k in kinds if (c, k) in shares) for c in CONDITIONS if c in r)
    remark = "worst " + ", ".join(f"{c} {k} {percent(s)}" for (c, k), s in worst) + "; bf16 end to end is reported only"
    return "One corrupted tensor flagged", "at least 99 % per kind", figure, min(judged.values()) >= 0.99, remark


@row("bench_sensitivity")
def scaled(r):
    kinds = ("act", "act_grad", "wgrad", "main_grad")
    shares = {(c, k): r[c][k]["scaled"]["flagged_share"] for c in CONDITIONS if c in r for k in kinds if "scaled" in r[c].get(k, {})}
    isolated = {key: s for key, s in shares.items() if key[0].endswith("isolated")}
    figure = "; ".join(f"{c.replace('_', ' ')}: " + ", ".join(f"{k} {percent(shares[c, k])}" for k in kinds if (c, k) in shares)
                       for c in CONDITIONS if any((c, k) in shares for k in kinds))
    weak = [f"{w['kind']} {w['module']} {percent(w['flagged'] / w['trials'], 1)}" for c in CONDITIONS if c.endswith("isolated")
            for w in r.get(c, {}).get("weak_modules_scaled", []) if w["trials"] >= 200]
    remark = "isolated modules below 99 %: " + (", ".join(weak) or "none") + "; end to end is reported only"
    return "Judged tensors that are seen when scaled by 1 + d", "isolated at least 99 % per kind", figure, min(isolated.values()) >= 0.99, remark


@row("bench_speed")
def speed(r):
    split = r["split_of_measured_run"]
    parts = ("reference_and_noise", "candidate_gemm", "candidate_other_kernels", "candidate_comm_arithmetic", "candidate_comm_scheduling",
             "candidate_trace_and_fill", "candidate_rest", "judge")
    remark = ", ".join(f"{p.replace('candidate_', '').replace('_', ' ')} {percent(split[p], 0)}" for p in parts)
    figure = f"{r['cases_per_s_and_core']:.0f} cases/s and core ({r['cases_per_cpu_s']:.0f} per CPU second)"
    return "Speed, gpt2-small-tiny in bf16, four ranks", "at least 200 cases/s and core", figure, r["cases_per_s_and_core"] >= 200, remark


@row("bench_vs_torch")
def versus_torch(r):
    figure = f"{r['ratio_of_machine_rates']:.0f} x by the clock, {r['ratio_of_rates_per_cpu_second']:.0f} x per CPU second"
    torch = {d: r["torch_" + d] for d in ("bf16", "fp32")}
    remark = f"PyTorch {torch['bf16']['torch']}: bf16 {torch['bf16']['cases_per_s']:.1f}, fp32 {torch['fp32']['cases_per_s']:.1f} cases/s on the whole " \
             f"machine; its fp32 runs agree to {torch['fp32']['worst_relative_error']:.1e}"
    met = min(r["ratio_of_machine_rates"], r["ratio_of_rates_per_cpu_second"]) >= 40
    return "Against a PyTorch/Gloo script that compares the same", "at least 40 x (aim 100 x)", figure, met, remark


@row("bench_ranks")
def ranks(r):
    large = r["worlds"][-1]
    figure = f"{large['ranks']:,} ranks: {large['verdict']}, {large['peak_rss_mib'] / 1024:.2f} GiB, {r['time_per_rank_ratio']:.2f} x the time per rank of " \
             f"{r['worlds'][0]['ranks']}, scheduling and matching {percent(large['share_scheduling_and_matching'], 1)}"
    met = large["verdict"] == "PASS" and large["peak_rss_mib"] < 4096 and r["time_per_rank_ratio"] <= 1.5 and large["share_scheduling_and_matching"] <= 0.15
    return "tp8 x pp8 x dp16", "PASS, under 4 GiB, at most 1.5 x per rank, scheduling at most 15 %", figure, met, f"{large['seconds']:.1f} s a trial " \
        f"({large['seconds_first_run']:.1f} s the first, which touches memory for the first time)"


@row("bench_width")
def width(r):
    figure = f"hidden {r['hidden']}: {r['verdict']} in {r['seconds']:.0f} s, {r['peak_rss_gib']:.1f} GiB"
    met = r["hidden"] == 4096 and r["verdict"] == "PASS" and r["seconds"] < 900 and r["peak_rss_gib"] < 24
    return "One llama-2-7b layer, tp 8 with sp", "verdict in 15 minutes within 24 GiB", figure, met, ""


@row("bench_kernels")
def kernels(r):
    figure = f"{percent(r['kernel_share_of_trial'], 0)} of a trial, {percent(r['kernel_share_of_candidate'], 0)} of the candidate's part"
    return "Time in GEMM and element kernels, hidden 512", "at least 70 %", figure, r["kernel_share_of_trial"] >= 0.7, \
        f"{r['candidate_gemm_gflops']:.0f} GFLOP/s in GEMM; trace and fill {percent(r['share_candidate_trace_and_fill'], 0)}, judge " \
        f"{percent(r['share_judge'], 0)}"


@row("bench_tracer")
def tracer_alarms(r):
    cases = sum(r[p]["cases"] for p in ("fp32", "bf16"))
    alarms = sum(r[p]["alarms"] for p in ("fp32", "bf16"))
    shares = {p: r[p]["not_judged"] / (r[p]["judged"] + r[p]["not_judged"]) for p in ("fp32", "bf16")}
    remark = "tp, sp, FSDP2 on 2 ranks, tp on 4; not judged " + ", ".join(f"{p} {percent(share, 1)}" for p, share in shares.items())
    return "PyTorch's own parallelism, traced and checked", "no alarm", f"{alarms} alarms in {cases} right layouts", alarms == 0, remark


@row("bench_tracer")
def tracer_cost(r):
    share = r["traced_step_ms"] / r["step_ms"] - 1
    figure = f"{percent(share, 0)} of a step ({r['step_ms']:.0f} ms)"
    return "Tracing a PyTorch step, hidden 256", "at most 20 %", figure, share <= 0.2, f"files not counted; PyTorch {r['torch']}"


@row("bench_replay")
def replay(r):
    return "Cases run twice: same bytes in every trace", "all", f"{r['identical_traces']} of {r['cases']}", r["identical_traces"] == r["cases"], ""


@row("bench_backends")
def backends(r):
    clean, planted, mpi = r["clean"], r["planted"], r["clean_under_mpirun"]
    figure = f"clean {clean['same_verdict']} of {clean['cases']}, planted {planted['same_verdict']} of {planted['cases']} ({planted['findings_in_sim']} findings); " \
             f"{mpi['passed']} of {mpi['cases']} clean pass under mpirun -n 4"
    met = clean["same_verdict"] == clean["cases"] and planted["same_verdict"] == planted["cases"] and mpi["findings"] == 0
    return "Same verdicts under sim and Open MPI", "all; no false alarm under mpirun", figure, met, f"{mpi['cases_per_s']:.0f} cases/s under mpirun; " \
        f"same signature too: {planted['same_signature']} of {planted['cases']} planted"


@row("bench_plants")
def plants(r):
    clean = r["power"]["clean"]
    figure = f"{r['found']} of {r['searches']} searches found, {r['localised_at_first_divergence']} localised; " \
             f"{clean['false_alarms']} false alarms in {clean['cases']:,} clean cases"
    met = r["found"] == r["localised_at_first_divergence"] == r["searches"] and clean["false_alarms"] == 0
    missed = f"missed {', '.join(r['missed'])}; " if r["missed"] else ""
    return f"{r['plants']} planted bugs, searched for blind", "all found and localised; no false alarm", figure, met, \
        f"{missed}median of cases to find {r['cases_to_detect_median']}, most {r['cases_to_detect_max']}"


@row("bench_plants")
def plants_named(r):
    figure = f"{len(r['class_named'])} of {r['plants']} in all their searches"
    return "Diagnosis names the bug's class", "at least 50 of 58", figure, len(r["class_named"]) >= 50, "not: " + ", ".join(r["class_not_named"])


@row("bench_plants")
def plants_minimal(r):
    figure = f"{r['plants'] - len(r['not_minimal'])} of {r['plants']} in all their searches; {r['evaluations_median']} evaluations (median)"
    met = len(r["not_minimal"]) <= r["plants"] - 55 and r["evaluations_median"] <= 200
    return "Shrunk to the minimal trigger", "at least 55 of 58; median evaluations at most 200", figure, met, "not: " + (", ".join(r["not_minimal"]) or "none")


@row("bench_plants")
def plants_flat(r):
    figure = f"{r['found_by_flat_bound']} of {r['searches']} searches; without a bug it alarms in {percent(r['flat_alarm_share'])} of the clean cases"
    return "The same searches by the flat bound of 8.3 %", "reported", figure, True, "a plant counts as found only in a case that passes the bound without it"


@row("bench_mutants")
def mutants(r):
    judged = r["silent"] + r["loud"] + r["survived"]
    share = r["silent"] / max(1, r["silent"] + r["survived"])
    figure = f"{r['silent']} silent kills of {r['silent'] + r['survived']} that run through ({percent(share)}); {r['loud']} loud, {r['equivalent']} equivalent, " \
             f"{r['survived']} survived, {r['not_reached']} not reached"
    met = share >= 0.99 and r["not_reached"] == 0
    return f"{judged + r['equivalent']} mutants of communication calls", "at least 99 % of silent ones found", figure, met, \
        "survived: " + (", ".join(r["which"]["survived"]) or "none")


@row("bench_pairs")
def pairs(r):
    cover = r["cover"]
    figure = f"{cover['pairs_run']:,} of {cover['pairs']:,} pairs; {percent(cover['triples_share'], 1)} of {cover['triples']:,} triples"
    return "Pairs of choices run by the first 2,000 cases", "all", figure, cover["pairs_run"] == cover["pairs"], \
        f"{r['inconclusive']} of these {r['cases']:,} inconclusive, {r['findings']} findings"


@row("bench_ops")
def ops_clean(r):
    c = r["clean"]
    figure = f"{c['findings']} findings of {c['cases']:,}; {c['judged']:,} elements judged, {percent(1 - c['judged'] / c['elements'])} not"
    sound = r["sound_plugin"]
    return "Clean cases of the device's operations, all formats", "1,000,000, no finding", figure, c["findings"] == 0 and c["cases"] >= 1000000, \
        f"{c['cases'] / c['cpu_s']:,.0f} cases per CPU second; kernels of a plugin without a bug: {sound['findings']} findings of {sound['cases']:,}"


@row("bench_ops")
def ops_speed(r):
    figure = f"{r['small']['cases_per_cpu_s']:,.0f} cases per CPU second; matrix products alone {r['small_gemm']['cases_per_cpu_s']:,.0f}"
    return f"Operation fuzzing, at most {r['small_elements']} elements", "at least 50,000 cases/s and core, matrix products apart", figure, \
        r["small"]["cases_per_cpu_s"] >= 50000, f"by the clock {r['small']['cases_per_s']:,.0f} and {r['small_gemm']['cases_per_s']:,.0f}"


@row("bench_ops")
def ops_planted(r):
    found = {name: p for name, p in r["planted"].items() if p}
    figure = f"{len(found)} of {len(r['planted'])} found within 2,000 cases, the last in case {max(p['case'] for p in found.values()):,}; " \
             f"{sum(p['minimal'] for p in found.values())} shrunk until no single step makes them smaller"
    shapes = "; ".join(f"{name} " + " ".join(f"{k}={v}" for k, v in p["shape"].items()) for name, p in found.items())
    return "Planted kernel bugs in sample plugins", "all of at least 12 found; smallest failing shape", figure, \
        len(found) == len(r["planted"]) >= 12 and all(p["minimal"] for p in found.values()), shapes


@row("bench_plugins")
def plugins_sound(r):
    total = {key: sum(s[key] for s in r["sound"].values()) for key in ("cases", "passed", "findings", "inconclusive", "skipped")}
    figure = f"{total['findings']} findings of {total['cases']:,} cases of {len(r['sound'])} libraries; {total['passed']:,} passed, {total['skipped']:,} skipped, {total['inconclusive']} inconclusive"
    return "Layers and models of plugins without a bug", "no finding", figure, total["findings"] == 0, ", ".join(r["sound"])


@row("bench_plugins")
def plugins_planted(r):
    found = [name for name, p in r["planted"].items() if p["findings"]]
    elsewhere = [name for name, p in r["planted"].items() if p["in_module"] is False]
    figure = f"{len(found)} of {len(r['planted'])} found; outside of their module {len(elsewhere)}; shrunk to at most {max(p['ranks'] for p in r['planted'].values())} ranks and " \
             f"{max(p['layers'] for p in r['planted'].values())} layers"
    return "Planted bugs in layers and models of plugins", "found, in their module", figure, len(found) == len(r["planted"]) and not elsewhere, \
        "; ".join(f"{name}: {', '.join(p['signatures'])}" for name, p in r["planted"].items())


@row("bench_check")
def check_against_cmp(r):
    kinds = ("fp32", "fp32_two_ranks", "bf16")
    figure = ", ".join(f"{k.replace('_', ' ')} {r[k]['ratio_cpu']:.2f} x ({r[k]['check_gib_per_cpu_s']:.1f} of {r[k]['cmp_gib_per_cpu_s']:.1f} GiB per CPU second)" for k in kinds)
    memory = max(max(r[k]["peak_rss_mib"], r[k]["noise_peak_rss_mib"]) for k in kinds)
    remark = f"reference and candidate {r['fp32']['pair_gib']:.0f} GiB together; by the clock " + ", ".join(f"{r[k]['ratio_wall']:.2f} x" for k in kinds)
    return "`check` against `cmp` on the same bytes, one thread, page cache", "at least 0.7 x; memory at most 256 MiB", f"{figure}; {memory:.0f} MiB", \
        r["ratio_cpu_least"] >= 0.7 and memory <= 256, remark


def ratio_table(r):
    """Quantiles of the unseen half at the full level of draws."""
    yield "| mode and precision | kind | measure | tensors | p50 | p99 | p99.9 | max | max at level 1 |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for condition in CONDITIONS:
        for kind, measures in r["unseen_half"].get(condition, {}).items():
            for measure, levels in measures.items():
                if measure == "of_bound":
                    if levels["count"]:
                        yield f"| {condition.replace('_', ' ')} | {kind} | error over bound (1 = alarm) | {levels['count']:,} | {levels['p50']:.2f} | " \
                              f"{levels['p99']:.2f} | {levels['p999']:.2f} | {levels['max']:.2f} | |"
                    continue
                full = levels["level2"]
                yield f"| {condition.replace('_', ' ')} | {kind} | {measure} | {full['count']:,} | {full['p50']:.2f} | {full['p99']:.2f} | " \
                      f"{full['p999']:.2f} | {full['max']:.2f} | {levels['level1']['max']:.2f} |"


def sensitivity_table(r):
    yield "| mode and precision | kind | scale (d) | 0.4 d | row | swap | neighbour | microbatch | rank | trials | redrawn | no place |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for condition in CONDITIONS:
        for kind, counts in r.get(condition, {}).items():
            if not isinstance(counts, dict) or "all" not in counts:
                continue
            cells = [percent(counts[c]["flagged_share"], 1) if counts.get(c, {}).get("trials") else "-" for c in ("scale", "small", "row", "swap", "neighbour", "microbatch", "rank")]
            cells[0] += f" ({r[condition]['d']:g})"
            yield f"| {condition.replace('_', ' ')} | {kind} | {' | '.join(cells)} | {counts['all']['trials']:,} | {counts['all']['redrawn']} | " \
                  f"{counts['all']['no_place']} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("lines", help="file with the JSON lines")
    parser.add_argument("--note", action="append", default=[], help="a remark above the table")
    args = parser.parse_args()
    lines = {}
    with open(args.lines, encoding="utf-8") as file:
        for text in file:
            if text.startswith("{"):
                line = json.loads(text)
                lines[line["bench"]] = line
    print("# Measurements\n")
    print("Made by `tests/bench/run_all.sh` and `tests/bench/results.py`; what each bench does stands at the top of its source.\n")
    for note in args.note:
        print(note + "\n")
    print("| what | bar | figure | met | command | commit | machine | remarks |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
    for bench, function in ROWS:
        if bench not in lines:
            continue
        line = lines[bench]
        what, bar, figure, met, remark = function(line)
        source = line.get("shardfuzz", line)
        machine = source.get("machine") or next((other["machine"] for other in lines.values() if "machine" in other), {})
        where = f"{machine.get('cpu', '')}, {machine.get('cores', '')} cores" + (f", load {machine['load']:.1f}" if "load" in machine else "")
        print(f"| {what} | {bar} | {figure} | {'yes' if met else 'NO'} | `{line.get('command', bench)}` | {source.get('commit') or ''} | {where} | {remark} |")
    if "bench_ratio" in lines:
        print("\n## Clean ratio, unseen half, full level of draws\n\nfro and row: error over noise level, alarm factors 3 and 6. The "
              "kinds below without noise are recomputed from the candidate's own tensors.\n")
        print("\n".join(ratio_table(lines["bench_ratio"])))
    if "bench_sensitivity" in lines:
        print("\n## Flagged corruptions\n\nA row, swap or shard must move a row (or the tensor) by more than its noise level, else it is drawn again.\n")
        print("\n".join(sensitivity_table(lines["bench_sensitivity"])))


if __name__ == "__main__":
    main()
