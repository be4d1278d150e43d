"""How much of the CPUs on which this process may run went to others while something was measured: other programs of this machine,
and, on a virtual one, other machines of its host (steal). From /proc; where that is not there, nothing is known and 0 is said."""
import os
import time


def busy_seconds(cpus):
    """Of these CPUs: at work for anybody, or taken by the host."""
    names, ticks = {f"cpu{cpu}" for cpu in cpus}, 0
    with open("/proc/stat", encoding="ascii") as file:
        for words in map(str.split, file):
            if words[0] in names:
                user, nice, system, _, _, irq, softirq, steal = map(int, words[1:9])
                ticks += user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def process_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Disturbance:
    """Between its making and share(): what others took, of those CPUs' time. `pids()` are the processes that measure."""

    def __init__(self, pids):
        self.pids, self.cpus = pids, os.sched_getaffinity(0)
        self.begin = self.now()

    def now(self):
        try:
            return time.monotonic(), busy_seconds(self.cpus), {pid: process_seconds(pid) for pid in [os.getpid(), *self.pids()]}
        except (OSError, ValueError):
            return None

    def share(self):
        end = self.now()
        if not self.begin or not end or end[0] <= self.begin[0]:
            return 0.0
        ours = sum(seconds - self.begin[2].get(pid, 0.0) for pid, seconds in end[2].items())
        others = end[1] - self.begin[1] - ours
        return max(0.0, others / ((end[0] - self.begin[0]) * len(self.cpus)))
