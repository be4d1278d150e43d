/* The progress of a training run on a terminal, in plain lines and in the log. */
#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "json.h"
#include "output.h"

static const double terminal_every = 0.2, plain_every = 10.0; /* seconds between two lines */

/* ------------------------------------------------------------------------------------------------------ signals -- */
static volatile sig_atomic_t interrupts;
static struct timespec first_signal; /* handlers do not interrupt each other */

/* A shell, timeout or a closed terminal may send the same wish twice: what comes within a second is no second one, nor is a
 * hang-up. */
static void on_signal(int number) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (interrupts++ == 0) {
        first_signal = now;
        return;
    }
    const double since =
        (double)(now.tv_sec - first_signal.tv_sec) + 1e-9 * (double)(now.tv_nsec - first_signal.tv_nsec);
    if (number != SIGHUP && since >= 1) _exit(130);
}

void progress_catch_signals(void) {
    struct sigaction action = {0};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGHUP);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return; /* nohup */
    sigaction(SIGHUP, &action, NULL);
}

bool progress_interrupted(void) {
    return interrupts > 0;
}

bool progress_is_terminal(void) {
    return isatty(STDOUT_FILENO) != 0;
}

/* ---------------------------------------------------------------------------------------------------------- log -- */
/* Is this line an object from its beginning to its end? A kill leaves a half without a line end; a power cut may leave zeros. */
static bool is_whole(const char *line, size_t length) {
    return length > 0 && line[length - 1] == '\n' && strlen(line) == length && line[0] == '{' && json_is_value(line);
}

static bool is_start(const char *line) {
    static const char start[] = "{\"event\": \"start\"";
    return strncmp(line, start, sizeof start - 1) == 0;
}

/* Is this whole line about what happened up to `step`? */
static bool belongs(const char *line, size_t length, int64_t step) {
    static const char key[] = "\"step\": ";
    if (!is_whole(line, length)) return false;
    if (is_start(line)) return true;
    const char *at = strstr(line, key);
    return !at || strtoll(at + sizeof key - 1, NULL, 10) <= step;
}

/* Cuts a log off before the first line that does not belong: what comes after it is of a run that was killed, and its steps are
 * done again. False: errno says why. */
static bool cut_log(FILE *log, int64_t step) {
    struct stat about;
    if (fstat(fileno(log), &about) != 0 || !S_ISREG(about.st_mode)) return true;
    char *line = NULL;
    size_t capacity = 0;
    off_t end = 0;
    ssize_t length;
    rewind(log);
    while ((length = getline(&line, &capacity, log)) > 0 && belongs(line, (size_t)length, step)) end += length;
    free(line);
    return fseeko(log, end, SEEK_SET) == 0 && ftruncate(fileno(log), end) == 0;
}

/* The name of the model that a training writes, which its log is known by wherever both lie. */
static const char *model_name(const progress_view *view) {
    const char *slash = strrchr(view->out, '/');
    return slash ? slash + 1 : view->out;
}

/* Do all beginnings in the log name this training's model, or, as older ones, none? */
static bool is_own_log(FILE *log, const progress_view *view) {
    char *wanted = NULL, *line = NULL;
    size_t bytes = 0, capacity = 0;
    ssize_t length;
    bool own = true;
    json out = {.file = open_memstream(&wanted, &bytes)};
    if (!out.file) return true;
    json_open(&out, NULL, '{');
    json_str(&out, "model", model_name(view));
    fclose(out.file); /* {"model": "..." */
    rewind(log);
    while (own && bytes > 1 && (length = getline(&line, &capacity, log)) > 0) {
        const char *at = is_whole(line, (size_t)length) && is_start(line) ? strstr(line, "\"model\": ") : NULL;
        own = !at || strncmp(at, wanted + 1, bytes - 1) == 0;
    }
    free(line);
    free(wanted);
    return own;
}

/* What is there stays until the log is this training's alone. */
static FILE *open_log(const char *path, bool reads) {
    const int fd = open(path, (reads ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    FILE *log = fd < 0 ? NULL : fdopen(fd, reads ? "a+" : "a");
    if (fd >= 0 && !log) close(fd);
    return log;
}

int progress_open(progress_view *view, const char *log_path, int64_t step) {
    struct stat about;
    view->log_path = log_path;
    if (!log_path) return 0;
    view->log = open_log(log_path, step >= 0);
    const bool file = view->log && fstat(fileno(view->log), &about) == 0 && S_ISREG(about.st_mode);
    if (file && flock(fileno(view->log), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return report_as(SL_ERR_IO, "--log %s: another training writes there; wait for its end, or give another name",
                         log_path);
    if (file && step >= 0 && !is_own_log(view->log, view))
        return report_as(SL_ERR_USAGE,
                         "--log %s names another model than %s as the one that it is of; give another name", log_path,
                         model_name(view));
    if (!view->log || (step < 0 && file && ftruncate(fileno(view->log), 0) != 0) ||
        (step >= 0 && !cut_log(view->log, step)))
        return report_as(SL_ERR_IO, "cannot write the log %s: %s; choose another place with --log", log_path,
                         strerror(errno));
    return 0;
}

/* Every line is complete on disk or in a pipe before the next begins: a kill leaves no half object but the last. After a line that
 * could not be written there is none: it would stand behind a half, and steps be missing between the two. */
static void log_end(progress_view *view, json *out) {
    json_close(out, '}');
    json_end(out);
    if (fflush(view->log) != 0) view->log_failed = true;
}

static bool has_log(const progress_view *view) {
    return view->log && !view->log_failed;
}

static void log_machine(json *out) {
    struct utsname name;
    const char *detail = NULL;
    const char *device = sl_device_name(0, &detail, NULL);
    json_open(out, "machine", '{');
    if (uname(&name) == 0) {
        json_str(out, "system", name.sysname);
        json_str(out, "architecture", name.machine);
    }
    json_str(out, "device", device);
    json_str(out, "detail", detail);
    json_close(out, '}');
}

void progress_start(progress_view *view, const sl_plan *plan, const char *command, double parameters,
                    const char *note) {
    if (!has_log(view)) return;
    json out = {.file = view->log};
    json_open(&out, NULL, '{');
    json_str(&out, "event", "start");
    json_str(&out, "version", sl_version());
    json_str(&out, "model", model_name(view));
    json_str(&out, "command", command);
    log_machine(&out);
    json_int(&out, "threads", sl_plan_threads(plan));
    json_str(&out, "kernel", sl_plan_kernels(plan));
    json_int(&out, "parameters", (long long)parameters);
    if (note) json_str(&out, "note", note);
    json_text(&out, "plan", sl_plan_explain_json(plan));
    log_end(view, &out);
}

/* The epoch that the last step belongs to, from 1: the same in lines about steps and about what follows an epoch. */
static int epoch_of(const sl_progress *p) {
    if (p->total_epochs < 1 || p->step < 1) return p->epoch + 1;
    int64_t steps = p->total_steps / p->total_epochs;
    return steps > 0 ? (int)((p->step + steps - 1) / steps) : p->epoch + 1;
}

static void log_step(progress_view *view, const sl_progress *p) {
    if (!has_log(view)) return;
    json out = {.file = view->log};
    json_open(&out, NULL, '{');
    json_int(&out, "step", p->step);
    json_int(&out, "epoch", epoch_of(p));
    json_number(&out, "loss", p->loss);
    if (view->perplexity) json_number(&out, "perplexity", p->perplexity);
    json_number(&out, "lr", p->learning_rate);
    json_number(&out, "grad_norm", p->gradient_norm);
    if (p->loss_scale > 0) {
        json_number(&out, "loss_scale", p->loss_scale);
        json_number(&out, "skipped_steps", p->skipped_steps);
    }
    json_number(&out, "tokens_per_s", p->tokens_per_second);
    json_int(&out, "memory_bytes", (long long)p->memory_bytes);
    json_number(&out, "seconds", p->seconds);
    log_end(view, &out);
}

static void log_event(progress_view *view, const sl_progress *p) {
    if (!has_log(view)) return;
    json out = {.file = view->log};
    json_open(&out, NULL, '{');
    json_str(&out, "event", p->event);
    json_int(&out, "step", p->step);
    json_int(&out, "epoch", epoch_of(p));
    if (strcmp(p->event, "evaluation") == 0) {
        json_number(&out, "valid_loss", p->valid_loss);
        if (view->perplexity) json_number(&out, "valid_perplexity", exp(p->valid_loss));
        if (isfinite(p->accuracy)) json_number(&out, "accuracy", p->accuracy);
        json_bool(&out, "improved", p->improved);
    } else if (strcmp(p->event, "epoch") == 0) {
        json_number(&out, "loss", p->loss);
    }
    json_number(&out, "best_loss", p->best_loss);
    if (p->path) json_str(&out, "path", p->path);
    json_number(&out, "seconds", p->seconds);
    log_end(view, &out);
}

/* ------------------------------------------------------------------------------------------------------- people -- */
static void clear_line(progress_view *view) {
    if (view->width) printf("\r%*s\r", view->width, "");
    view->width = 0;
}

/* Squares of differences may be of any size, where cross-entropies have four decimals. */
static const char *loss_text(double loss, char text[BYTES_TEXT]) {
    const double size = fabs(loss);
    snprintf(text, BYTES_TEXT, size == 0 || (size >= 1e-3 && size < 1e6) ? "%.4f" : "%.4g", loss);
    return text;
}

/* = the length of the text, which ends where the capacity does. */
static int step_text(const progress_view *view, const sl_progress *p, char *text, size_t capacity) {
    char rate[64], eta[BYTES_TEXT], memory[BYTES_TEXT], loss[BYTES_TEXT], perplexity[32] = "", scale[64] = "";
    if (p->tokens_per_second >= 10000)
        snprintf(rate, sizeof rate, "%.1fk %s/s", p->tokens_per_second / 1000, view->unit);
    else
        snprintf(rate, sizeof rate, "%.0f %s/s", p->tokens_per_second, view->unit);
    if (view->perplexity) snprintf(perplexity, sizeof perplexity, "  ppl %.2f", p->perplexity);
    if (p->loss_scale > 0)
        snprintf(scale, sizeof scale, "  loss scale %.4g, %.0f skipped", p->loss_scale, p->skipped_steps);
    snprintf(text, capacity, "epoch %d/%d  step %lld/%lld  loss %s%s  lr %.4g  %s  eta %s  %s  %s%s", epoch_of(p),
             p->total_epochs, (long long)p->step, (long long)p->total_steps, loss_text(p->loss, loss), perplexity,
             p->learning_rate, rate, seconds_text(p->eta_seconds, eta), bytes_text((double)p->memory_bytes, memory),
             p->kernel ? p->kernel : "", scale);
    return (int)strlen(text);
}

/* Leaves out the last fields of a line that would be wider than the terminal: a wrapped line cannot be rewritten. */
static int fit_terminal(char *text, int length) {
    struct winsize window;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col < 2 || length < window.ws_col) return length;
    length = window.ws_col - 1;
    for (int i = length; i > 0; i--) /* at the blanks between two fields, if there are any */
        if (text[i] == ' ' && text[i - 1] == ' ') {
            length = i - 1;
            break;
        }
    text[length] = 0;
    return length;
}

static void show_step(progress_view *view, const sl_progress *p) {
    double every = view->terminal ? terminal_every : plain_every;
    if (view->any_shown && p->seconds - view->shown < every) return;
    view->any_shown = true;
    view->shown = p->seconds;
    char text[320];
    int length = step_text(view, p, text, sizeof text);
    if (view->terminal) {
        length = fit_terminal(text, length);
        printf("\r%s%*s", text, view->width > length ? view->width - length : 0, "");
        view->width = length;
    } else {
        puts(text);
    }
    flush_output();
}

static void show_epoch(progress_view *view, const sl_progress *p, double loss) {
    char text[BYTES_TEXT];
    clear_line(view);
    printf("epoch %d/%d  step %lld/%lld  loss %s", epoch_of(p), p->total_epochs, (long long)p->step,
           (long long)p->total_steps, loss_text(loss, text));
}

static void show_evaluation(progress_view *view, const sl_progress *p) {
    /* After an epoch the loss beside the validation loss is the epoch's mean, after a stop in its middle the last step's. */
    show_epoch(view, p, view->epoch_step == p->step ? view->epoch_loss : p->loss);
    char valid[BYTES_TEXT];
    printf("  valid loss %s", loss_text(p->valid_loss, valid));
    if (view->perplexity) printf("  valid ppl %.2f", exp(p->valid_loss));
    if (isfinite(p->accuracy)) printf("  accuracy %.4f", p->accuracy);
    puts(p->improved ? "  best so far" : "");
    flush_output();
    view->evaluated = true;
    view->valid_loss = p->valid_loss;
    view->best_loss = p->best_loss;
}

static void show_event(progress_view *view, const sl_progress *p) {
    if (strcmp(p->event, "epoch") == 0) {
        view->epoch_loss = p->loss;
        view->epoch_step = p->step;
        if (view->validates) return;
        show_epoch(view, p, p->loss);
        putchar('\n');
        flush_output();
    } else if (strcmp(p->event, "evaluation") == 0) {
        show_evaluation(view, p);
    } else if (strcmp(p->event, "checkpoint") == 0) {
        bool out = p->path && view->out && strcmp(p->path, view->out) == 0;
        view->wrote_out |= out;
        view->wrote_last |= !out;
    } else if (strcmp(p->event, "stop") == 0) {
        view->stopped = true;
    } else if (strcmp(p->event, "early_stop") == 0) {
        clear_line(view);
        printf("stopped early: no improvement for --patience epochs\n");
    }
}

sl_answer progress_show(void *context, const sl_progress *p) {
    progress_view *view = context;
    view->events++;
    if (strcmp(p->event, "step") == 0) {
        log_step(view, p);
        show_step(view, p);
    } else {
        log_event(view, p);
        show_event(view, p);
    }
    view->last = *p;
    view->last.event = view->last.kernel = view->last.path = NULL; /* borrowed for the call */
    if (output_failed()) return SL_STOP_SAVING;                    /* nobody reads it any more */
    if (!progress_interrupted()) return SL_CONTINUE;
    if (!view->announced && !view->stopped) {
        clear_line(view);
        printf("stopping: saving and evaluating first (again, a second later, to leave at once)\n");
        flush_output();
        view->announced = true;
    }
    return SL_STOP_SAVING;
}

int progress_close(progress_view *view) {
    if (view->width) putchar('\n');
    view->width = 0;
    if (!view->log) return 0;
    if (fclose(view->log) != 0) view->log_failed = true;
    view->log = NULL;
    if (!view->log_failed) return 0;
    return report_as(SL_ERR_IO, "the log %s could not be written completely; free some space or write elsewhere",
                     view->log_path);
}
