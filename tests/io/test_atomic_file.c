/* Whole-file reading and atomic writing: src/io/atomic_file.c. */
#include "io/atomic_file.h"
#include <signal.h>
#include <sys/resource.h>
#include "io/io_helpers.h"

enum { LIMIT = 1 << 20 };

static void check_content(const char *path, const char *expected) {
    sli_bytes bytes;
    REQUIRE_OK(sli_bytes_read(NULL, path, "text", LIMIT, &bytes));
    CHECK(bytes.size == strlen(expected) && !memcmp(bytes.data, expected, bytes.size));
    sli_bytes_free(&bytes);
}

TEST(io_atomic_write_and_read) {
    const char *folder = test_folder(), *path = io_path(folder, "a.txt");
    REQUIRE_OK(sli_atomic_write(path, "first", 5));
    check_content(path, "first");
    REQUIRE_OK(sli_atomic_write(path, "second text", 11));
    check_content(path, "second text");
    CHECK(io_count_files(folder) == 1);
}

TEST(io_atomic_permissions) {
    const char *folder = test_folder(), *path = io_path(folder, "a.txt");
    struct stat info;
    mode_t mask = umask(022);
    REQUIRE_OK(sli_atomic_write(path, "x", 1));
    umask(mask);
    REQUIRE(stat(path, &info) == 0);
    CHECK((info.st_mode & 0777) == 0644);
    REQUIRE(chmod(path, 0640) == 0);
    REQUIRE_OK(sli_atomic_write(path, "y", 1));
    REQUIRE(stat(path, &info) == 0);
    CHECK((info.st_mode & 0777) == 0640); /* the new file keeps the old one's */
}

TEST(io_atomic_link) {
    const char *folder = test_folder(), *path = io_path(folder, "real"), *link = io_path(folder, "link");
    REQUIRE_OK(sli_atomic_write(path, "old", 3));
    REQUIRE(symlink("real", link) == 0);
    REQUIRE_OK(sli_atomic_write(link, "new", 3));
    check_content(path, "new");
    struct stat info;
    CHECK(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
}

/* The file behind a link need not be there yet, nor the link be of the same folder. */
TEST(io_atomic_link_to_nothing) {
    const char *folder = test_folder(), *other = io_path(folder, "other"), *path = io_path(folder, "other/real"),
               *link = io_path(folder, "link"), *first = io_path(folder, "first");
    struct stat info;
    REQUIRE(mkdir(other, 0777) == 0);
    REQUIRE(symlink("other/real", link) == 0 && symlink(link, first) == 0);
    REQUIRE_OK(sli_atomic_write(first, "new", 3));
    check_content(path, "new");
    CHECK(lstat(link, &info) == 0 && S_ISLNK(info.st_mode) && lstat(first, &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(io_count_files(other) == 1);
    REQUIRE(unlink(link) == 0 && symlink("first", link) == 0);
    CHECK_FAILS(sli_atomic_write(first, "new", 3), SL_ERR_IO, "remove the link");
}

TEST(io_atomic_abort_keeps_old) {
    const char *folder = test_folder(), *path = io_path(folder, "a.txt");
    REQUIRE_OK(sli_atomic_write(path, "old", 3));
    sli_atomic_file file;
    REQUIRE_OK(sli_atomic_begin(&file, path));
    REQUIRE_OK(sli_atomic_append(&file, "new", 3));
    CHECK(io_count_files(folder) == 2);
    sli_atomic_abort(&file);
    sli_atomic_abort(&file);
    check_content(path, "old");
    CHECK(io_count_files(folder) == 1);
}

/* Two writers of one path: both work, the last commit wins, nothing is left over. */
TEST(io_atomic_two_writers) {
    const char *folder = test_folder(), *path = io_path(folder, "a.txt");
    sli_atomic_file one, two;
    REQUIRE_OK(sli_atomic_begin(&one, path));
    REQUIRE_OK(sli_atomic_begin(&two, path));
    REQUIRE_OK(sli_atomic_append(&one, "one", 3));
    REQUIRE_OK(sli_atomic_append(&two, "two!", 4));
    REQUIRE_OK(sli_atomic_commit(&one));
    check_content(path, "one");
    REQUIRE_OK(sli_atomic_commit(&two));
    check_content(path, "two!");
    CHECK(io_count_files(folder) == 1);
}

/* What a killed process left is used up by the next writer. */
TEST(io_atomic_leftover) {
    const char *folder = test_folder(), *path = io_path(folder, "a.txt");
    io_write_file(io_path(folder, ".a.txt.tmp"), "half a longer file", 18);
    REQUIRE_OK(sli_atomic_write(path, "whole", 5));
    check_content(path, "whole");
    CHECK(io_count_files(folder) == 1);
}

TEST(io_atomic_full_disk) {
    CHECK_FAILS(sli_atomic_write("/dev/full", "x", 1), SL_ERR_IO,
                "/dev/full: writing failed (No space left on device)");
    REQUIRE_OK(sli_atomic_write("/dev/null", "x", 1));
}

/* A limit on file sizes stands for a disk that becomes full in the middle: short writes, then an error. */
TEST(io_atomic_file_size_limit) {
    const char *folder = test_folder(), *path = io_path(folder, "a.txt");
    REQUIRE_OK(sli_atomic_write(path, "old", 3));
    struct rlimit before, small;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = before;
    small.rlim_cur = 5000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    static char large[20000];
    sl_status status = sli_atomic_write(path, large, sizeof large);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    CHECK(status == SL_ERR_IO);
    CHECK(strstr(sl_error_detail(), "File too large") && strstr(sl_error_detail(), "ulimit -f"));
    CHECK(strstr(sl_error_detail(), "unchanged"));
    check_content(path, "old");
    CHECK(io_count_files(folder) == 1);
}

TEST(io_atomic_bad_paths) {
    const char *folder = test_folder();
    CHECK_FAILS(sli_atomic_write("", "x", 1), SL_ERR_IO, "give a file name");
    CHECK_FAILS(sli_atomic_write(folder, "x", 1), SL_ERR_IO, "is a folder");
    CHECK_FAILS(sli_atomic_write(io_path(folder, "new/"), "x", 1), SL_ERR_IO, "is a folder");
    CHECK_FAILS(sli_atomic_write(io_path(folder, "no/such/file"), "x", 1), SL_ERR_IO, "make the folder first");
    char name[5000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK_FAILS(sli_atomic_write(name, "x", 1), SL_ERR_IO, "shorter name");
    memcpy(name, "/tmp/", 5);
    name[300] = 0;
    CHECK_FAILS(sli_atomic_write(name, "x", 1), SL_ERR_IO, "shorter name");
    CHECK(io_count_files(folder) == 0);
}

static bool save_is_refused(void *path) {
    char other[80];
    snprintf(other, sizeof other, "%s.other", (const char *)path);
    return sli_atomic_write(path, "x", 1) == SL_ERR_IO && strstr(sl_error_detail(), "is write-protected") &&
           sli_atomic_write(other, "x", 1) == SL_ERR_IO && strstr(sl_error_detail(), "folder that you may write to");
}

static bool reading_is_refused(void *path) {
    sli_bytes bytes;
    return sli_bytes_read(NULL, path, "model file", LIMIT, &bytes) == SL_ERR_FILE &&
           strstr(sl_error_detail(), "the model file may not be read (Permission denied)") && !bytes.data;
}

/* Right below /tmp: the test's own folder is closed to other users. */
TEST(io_atomic_permissions_missing) {
    char folder[] = "/tmp/sluice-io-XXXXXX", path[64];
    REQUIRE(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    io_write_file(path, "x", 1);
    bool prepared = chmod(path, 0) == 0 && chmod(folder, 0555) == 0;
    bool written = io_as_ordinary_user(save_is_refused, path), read = io_as_ordinary_user(reading_is_refused, path);
    chmod(folder, 0755);
    unlink(path);
    rmdir(folder);
    CHECK(prepared);
    CHECK(written);
    CHECK(read);
}

TEST(io_read_bad_paths) {
    const char *folder = test_folder();
    sli_bytes bytes;
    CHECK_FAILS(sli_bytes_read(NULL, io_path(folder, "none"), "model file", LIMIT, &bytes), SL_ERR_FILE,
                "none: there is no such model file; check the path");
    CHECK_FAILS(sli_bytes_read(NULL, "", "model file", LIMIT, &bytes), SL_ERR_FILE, "give a file name");
    CHECK_FAILS(sli_bytes_read(NULL, folder, "model file", LIMIT, &bytes), SL_ERR_FILE,
                "is a folder, not a model file");
    CHECK_FAILS(sli_bytes_read(NULL, "/dev/zero", "model file", LIMIT, &bytes), SL_ERR_FILE, "is a device");
    io_write_file(io_path(folder, "empty"), "", 0);
    CHECK_FAILS(sli_bytes_read(NULL, io_path(folder, "empty"), "model file", LIMIT, &bytes), SL_ERR_FILE, "is empty");
    CHECK_FAILS(sli_bytes_read(NULL, io_path(folder, "empty/x"), "model file", LIMIT, &bytes), SL_ERR_FILE,
                "no such model file");
    io_write_file(io_path(folder, "eleven"), "12345678901", 11);
    CHECK_FAILS(sli_bytes_read(NULL, io_path(folder, "eleven"), "model file", 10, &bytes), SL_ERR_FILE,
                "has 11 bytes, more than the 10 that are read");
    /* A regular file whose first byte cannot be read. */
    CHECK_FAILS(sli_bytes_read(NULL, "/proc/self/mem", "model file", LIMIT, &bytes), SL_ERR_IO,
                "reading the model file failed");
}

/* `<(command)` in a shell gives a pipe: its length is known only at its end. */
static void read_pipe(size_t count, uint64_t limit, sl_status expected) {
    const char *path = io_path(test_folder(), "pipe");
    unlink(path);
    REQUIRE(mkfifo(path, 0600) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_WRONLY);
        signal(SIGPIPE, SIG_IGN);
        for (size_t i = 0; i < count; i++)
            if (write(fd, "abcdefgh", 8) != 8) break;
        _exit(0);
    }
    REQUIRE(child > 0);
    sli_bytes bytes;
    sl_status status = sli_bytes_read(NULL, path, "text", limit, &bytes);
    int child_status;
    waitpid(child, &child_status, 0);
    CHECK(status == expected);
    if (status != SL_OK) return;
    CHECK(bytes.size == 8 * count && !memcmp(bytes.data + 8 * (count - 1), "abcdefgh", 8));
    sli_bytes_free(&bytes);
}

TEST(io_read_pipe) {
    read_pipe(3, LIMIT, SL_OK);
    read_pipe(40000, LIMIT, SL_OK);
    read_pipe(40000, 100000, SL_ERR_FILE);
    CHECK(strstr(sl_error_detail(), "more than the 100000 bytes"));
}
