/* The sources that NVRTC compiles; cmake/SluiceEmbed.cmake lists them and makes the tables. */
#ifndef SLI_CUDA_EMBEDDED_H
#define SLI_CUDA_EMBEDDED_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sli_embedded {
    const char *name; /* below src/: "cell/lstm.h" */
    const char *text;
} sli_embedded;
extern const sli_embedded sli_embedded_sources[]; /* a NULL name ends it */
extern const char sli_embedded_sum[];             /* SHA-256 of all names and texts, as text */

#ifdef __cplusplus
}
#endif
#endif
