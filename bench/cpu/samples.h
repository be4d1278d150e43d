/* Where a program is when its clock of CPU time strikes: samples of itself, for machines without perf. A process-wide timer strikes one
 * thread at a time, by the system's choice. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>
#include <ucontext.h>

enum { SAMPLES_MOST = 1 << 16, SAMPLES_EVERY_US = 500 };
static uintptr_t samples_at[SAMPLES_MOST];
static volatile int samples_count;

static void samples_strike(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    const int k = __atomic_fetch_add(&samples_count, 1, __ATOMIC_RELAXED);
#if defined(__x86_64__)
    if (k < SAMPLES_MOST) samples_at[k] = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    if (k < SAMPLES_MOST) samples_at[k] = (uintptr_t)((ucontext_t *)context)->uc_mcontext.pc;
#endif
}

static void samples_run(int on) {
    const struct itimerval every = {{0, on ? SAMPLES_EVERY_US : 0}, {0, on ? SAMPLES_EVERY_US : 0}};
    struct sigaction action = {.sa_sigaction = samples_strike, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &every, NULL);
}

/* {"samples": [[address, "library", "symbol"], ...]}: of this program the address that nm prints; of libraries the nearest symbol that
 * they show. */
static void samples_tell(void) {
    Dl_info own = {0}, of;
    dladdr((void *)(uintptr_t)samples_tell, &own);
    const int count = samples_count < SAMPLES_MOST ? samples_count : SAMPLES_MOST;
    printf("{\"samples\": [");
    for (int k = 0; k < count; k++) {
        of = (Dl_info){0};
        dladdr((void *)samples_at[k], &of);
        const int here = of.dli_fbase == own.dli_fbase;
        printf("%s[%lu, \"%s\", \"%s\"]", k ? ", " : "", (unsigned long)(here ? samples_at[k] - (uintptr_t)own.dli_fbase : 0),
               here || !of.dli_fname ? "" : of.dli_fname, here || !of.dli_sname ? "" : of.dli_sname);
    }
    printf("]}\n");
    samples_count = 0;
}

#endif
