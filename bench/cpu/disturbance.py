"""How much of the CPUs went to others while something was measured: other programs of this machine, and, on a virtual one, other
machines of its host (steal). From /proc; where that is not there, nothing is known and 0 is said."""
import os
import time


def machine_seconds():
    """Of all CPUs: at work for anybody, or taken by the host."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def process_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Disturbance:
    """Between its making and share(): what others took, of all CPUs' time. `pids()` are the processes that measure."""

    def __init__(self, pids):
        self.pids = pids
        self.begin = self.now()

    def now(self):
        try:
            return time.monotonic(), machine_seconds(), {pid: process_seconds(pid) for pid in [os.getpid(), *self.pids()]}
        except (OSError, ValueError):
            return None

    def share(self):
        end = self.now()
        if not self.begin or not end or end[0] <= self.begin[0]:
            return 0.0
        ours = sum(seconds - self.begin[2].get(pid, 0.0) for pid, seconds in end[2].items())
        others = end[1] - self.begin[1] - ours
        return max(0.0, others / ((end[0] - self.begin[0]) * os.cpu_count()))
