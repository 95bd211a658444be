"""Repeated measurements, and the report of a part: one line of JSON with the fields of `maverl bench --json`."""

import os
import platform
import re
import statistics
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path


def machine_seconds():
    """Returns the processor seconds of the whole machine so far, with those that its host took."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    # user nice system idle iowait irq softirq steal; guests are counted in user already.
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def peak_bytes():
    """Returns the peak memory of this process."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text()).group(1))


def now():
    """Returns the time, and the processor seconds of the machine and of this process so far."""
    return time.perf_counter(), machine_seconds(), time.process_time()


class Watch:
    """Seconds of each repeat, and the processor seconds that other processes took meanwhile."""

    def __init__(self):
        self.seconds, self.others, self.began = [], 0.0, None

    def start(self):
        self.began = now()

    def stop(self):
        """Adds the time since the start as a repeat."""
        seconds, machine, own = (after - before for before, after in zip(self.began, now()))
        self.seconds.append(seconds)
        self.others += machine - own
        self.began = None


def repeat(repeats, work, prepare=lambda: None):
    """Measures `work` after each `prepare`, which is not measured; the first time is not counted. Returns a watch."""
    prepare()
    work()
    watch = Watch()
    for _ in range(repeats):
        prepare()
        watch.start()
        work()
        watch.stop()
    return watch


def repeat_many(repeats, work, seconds=0.2):
    """Measures many calls of `work` at once, about `seconds` long. Returns a watch, and the number of calls."""
    work()
    began = time.perf_counter()
    work()
    calls = max(1, int(seconds / (time.perf_counter() - began)))

    def all_calls():
        for _ in range(calls):
            work()

    return repeat(repeats, all_calls), calls


@dataclass
class Figure:
    """A number that was measured several times. `flop` are the operations per unit."""

    what: str
    unit: str
    values: list
    watch: Watch
    flop: float | None = None
    details: dict = field(default_factory=dict)

    @classmethod
    def rate(cls, what, unit, amount, watch, **options):
        """Returns the figure of an amount per second."""
        return cls(what, unit, [amount / seconds for seconds in watch.seconds], watch, **options)

    @classmethod
    def milliseconds(cls, what, unit, watch):
        """Returns the figure of the milliseconds of a repeat."""
        return cls(what, unit, [1e3 * seconds for seconds in watch.seconds], watch)

    def fields(self, matmul_gflops):
        """Returns the fields of the report."""
        median = statistics.median(self.values)
        found = {"what": self.what, "unit": self.unit, "median": median, "min": min(self.values), "max": max(self.values)}
        found["values"] = self.values
        if self.flop:
            found["gflops"] = median * self.flop / 1e9
            if matmul_gflops:
                found["share"] = found["gflops"] / matmul_gflops
        return {**found, **self.details}


def report(args, peer, figures):
    """Returns the report of a part. The speed of products is measured here, after the part, if its figures are of a model."""
    peak, seconds = peak_bytes(), sum(sum(figure.watch.seconds) for figure in figures)
    others = max(0.0, sum(figure.watch.others for figure in figures) / seconds)
    has_model = any(figure.flop for figure in figures)
    limit = peer.limit(args.dtype) if has_model else None
    fields = {"part": args.part, "size": args.size, "dtype": args.dtype, "threads": args.threads, "simd": peer.simd()}
    fields["figures"] = [figure.fields(limit) for figure in figures]
    if limit:
        fields["matmul_gflops"] = limit
    fields |= {"peak_bytes": peak, "other_cores": others, "peer": args.peer, "tuned": args.tuned}
    versions = {package: version(package) for package in peer.PACKAGES}
    return fields | {"versions": {"python": platform.python_version(), **versions}}
