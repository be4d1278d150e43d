/* The tables behind problem strings: which fields and options exist, to which ops they belong, how they are stored. */
#ifndef SLI_PROBLEM_TABLES_H
#define SLI_PROBLEM_TABLES_H

#include "core/problem.h"

#define SLI_OP_BIT(op) (1u << (op))

/* Names of an enum's values; ends with NULL. */
typedef struct sli_choice {
    const char *name;
    int value;
} sli_choice;
const char *sli_choice_name(const sli_choice *choices, int value); /* NULL if none */
const sli_choice *sli_choice_find(const sli_choice *choices, const char *name, size_t count);

typedef enum sli_problem_field_type { SLI_PROBLEM_INT, SLI_PROBLEM_INT64, SLI_PROBLEM_FLAG } sli_problem_field_type;

typedef struct sli_problem_field {
    const char *name;
    sli_problem_field_type type;
    size_t offset;          /* in sli_problem */
    unsigned ops, required; /* SLI_OP_BITs */
    int when_absent;        /* this value is not printed */
    bool is_dtype;
    const char *meaning;
} sli_problem_field;

typedef enum sli_option_type {
    SLI_OPTION_FLAG,        /* bool */
    SLI_OPTION_FLAG_INT,    /* int 0/1 */
    SLI_OPTION_FLAG_VALUE,  /* enum = value */
    SLI_OPTION_NUMBER,      /* double */
    SLI_OPTION_FORGET,      /* forget_at_run and forget_bias */
    SLI_OPTION_CLIP,        /* clip.kind = value and clip.value */
    SLI_OPTION_CHOICE,      /* enum by name; default 0 or value */
    SLI_OPTION_CHOICE_BOOL, /* bool by name; default false, choices[0] is true */
    SLI_OPTION_ACTIVATION,  /* enum by name; default sigmoid if value, else the op's */
    SLI_OPTION_BIAS,        /* enum by name; default by the op */
    SLI_OPTION_PARTS,       /* int */
    SLI_OPTION_WIDTHS       /* a:b:c */
} sli_option_type;

typedef struct sli_option {
    const char *name;
    unsigned ops;
    const char *owners; /* of the ops, for people */
    sli_option_type type;
    size_t offset; /* in sli_problem */
    int value;     /* see the types; of an optimizer's option: bits of the kinds that have it */
    const sli_choice *choices;
    double minimum, maximum; /* NUMBER, FORGET, CLIP */
    bool open, open_above;   /* the limits themselves are out */
    const char *range;       /* the same for people */
    double usual;            /* NUMBER: what 0, not given, stands for */
} sli_option;

#define SLI_KIND_BIT(kind) (1 << (kind))

enum { SLI_PROBLEM_FIELD_MAX = 16, SLI_OPTION_MAX = 40 };
extern const sli_problem_field sli_problem_fields[]; /* in the order of printing; ends with a NULL name */
extern const sli_option sli_options[];               /* alphabetical; ends with a NULL name */
extern const sli_choice sli_dtype_choices[], sli_activation_choices[], sli_optimizer_choices[];

#endif
