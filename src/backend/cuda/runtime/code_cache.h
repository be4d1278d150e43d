/* Compiled kernels on disk, from one process to the next: $XDG_CACHE_HOME/sluice, a file each (docs/GPU.md). Everything that
 * fails here only means that a kernel is compiled again. */
#ifndef SLI_CUDA_CODE_CACHE_H
#define SLI_CUDA_CODE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---------------------------------------------------------------------------------------------------- SHA-256 -- */
typedef struct sli_digest {
    uint8_t byte[32];
} sli_digest;
typedef struct sli_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} sli_sha256;
void sli_sha256_begin(sli_sha256 *hash);
void sli_sha256_add(sli_sha256 *hash, const void *data, size_t bytes);
sli_digest sli_sha256_end(sli_sha256 *hash);

/* ------------------------------------------------------------------------------------------------------- cache -- */
/* Machine code, and what ptxas said of it. One block: `log` is to be freed. */
typedef struct sli_code {
    char *log; /* ends with 0, which log_bytes counts */
    size_t log_bytes;
    void *cubin;
    size_t cubin_bytes;
} sli_code;
enum { SLI_CACHE_MOST_FILES = 512, SLI_CACHE_MOST_MIB = 256 };

/* `log_bytes` and `cubin_bytes` of *code are given; false: out of memory. */
bool sli_code_alloc(sli_code *code);
void sli_code_free(sli_code *code);
/* The file `name` with this key; false: there is none that is whole. */
bool sli_code_cache_read(const char *name, const sli_digest *key, sli_code *code);
/* Writes it and deletes the oldest of too many. */
void sli_code_cache_write(const char *name, const sli_digest *key, const sli_code *code);

#endif
