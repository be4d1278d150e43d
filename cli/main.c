/* The command: a table of commands, --help and --version. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

static const command *const commands[] = {&command_train,   &command_predict, &command_eval,  &command_generate,
                                          &command_convert, &command_plan,    &command_check, &command_bench,
                                          &command_info,    &command_devices};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(void) {
    printf("sluice %s - trains and runs LSTM, GRU and simple recurrent networks\n\n"
           "usage: sluice COMMAND ...\n\n",
           sl_version());
    for (int i = 0; i < COMMANDS; i++) printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf("\n"
           "  sluice COMMAND --help     options and examples of a command\n"
           "  sluice --version          the version\n\n"
           "A first success in a minute:\n"
           "  sluice train lm book.txt --out book.safetensors --max-minutes 1\n"
           "  sluice generate book.safetensors --length 400\n\n"
           "Exit codes: 0 done, 1 a check failed, 2 wrong use, 3 bad input or file, 4 no kernel satisfies --require,\n"
           "5 memory, 6 input/output, 7 device, 8 numbers (NaN, divergence).\n");
}

static int unknown_command(const char *word) {
    char names[256] = "", near[64];
    size_t used = 0;
    for (int i = 0; i < COMMANDS; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s ", commands[i]->name);
    if (nearest_word(word, names, near, sizeof near))
        return usage_error(NULL, "there is no command '%s' (did you mean %s?)", word, near);
    return usage_error(NULL, "there is no command '%s'", word);
}

static int run_command(int count, char **words) {
    if (count == 0) return usage_error(NULL, "no command given, such as train, generate or plan");
    if (strcmp(words[0], "--version") == 0) {
        printf("sluice %s\n", sl_version());
        return 0;
    }
    bool help = strcmp(words[0], "help") == 0 || strcmp(words[0], "--help") == 0 || strcmp(words[0], "-h") == 0;
    if (help && count == 1) {
        print_help();
        return 0;
    }
    const char *name = help ? words[1] : words[0];
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i]->name) != 0) continue;
        if (!help) return commands[i]->run(commands[i], count - 1, words + 1);
        command_help(commands[i]);
        return 0;
    }
    return unknown_command(name);
}

/* Of a caller who closed one of the first three descriptors a file that is opened must not become it. What is written there fails, as before. */
static void fill_descriptors(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
    fill_descriptors();
    /* A file that may not grow and a reader that went away are write errors like a full disk. */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    return finish_output(run_command(argc - 1, argv + 1));
}
