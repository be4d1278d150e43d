/* Philox against the published known answers (Random123's kat_vectors), and the drop rule. */
#include "core/rng.h"
#include "test.h"

static void check_words(sli_rng_words got, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    CHECK(got.word[0] == a && got.word[1] == b && got.word[2] == c && got.word[3] == d);
}

TEST(rng_philox_known_answers) {
    check_words(sli_philox(0, 0, 0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
    uint32_t ones = 0xffffffffu;
    check_words(sli_philox(~0ull, ones, ones, ones, ones), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
    check_words(sli_philox(0x299f31d0a4093822ull, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344), 0xd16cfe09,
                0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(rng_words_are_keyed_as_documented) {
    sli_rng rng = {.seed = 77, .step = 5, .micro_step = 2, .stream = 3u << 8 | SLI_PURPOSE_DROPOUT};
    for (uint64_t element = 0; element < 50; element++)
        CHECK(sli_rng_word(&rng, element) ==
              sli_philox(77, (uint32_t)(element / 4), 5, 3u << 8 | SLI_PURPOSE_DROPOUT, 2).word[element % 4]);
}

TEST(rng_drops_the_asked_share) {
    sli_rng rng = {.seed = test_seed, .step = 1, .stream = SLI_PURPOSE_DROPOUT};
    enum { N = 100000 };
    static const double rates[] = {0, 0.1, 0.35, 0.5, 0.9};
    for (size_t k = 0; k < sizeof rates / sizeof *rates; k++) {
        int dropped = 0;
        double sum = 0;
        for (uint64_t i = 0; i < N; i++) {
            dropped += sli_rng_word(&rng, i) < sli_drop_threshold(rates[k]);
            sum += sli_rng_uniform(&rng, i);
        }
        CHECK_NEAR((double)dropped / N, rates[k], 5 * sqrt(rates[k] * (1 - rates[k]) / N) + 1e-12);
        CHECK_NEAR(sum / N, 0.5, 5 * sqrt(1.0 / 12 / N));
    }
}
